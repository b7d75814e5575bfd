//! What is known of an upload that is not whole: its number, in an object beside the archive. Its parts are seen by nobody, but
//! paid for, until it is completed or aborted; whoever comes after a killed process aborts it by that.

use super::BucketError;
use super::client::Object;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutPayload};
use serde::{Deserialize, Serialize};

/// The longest object of that kind that is read.
const MOST: u64 = 16 * 1024;

/// How its name ends: nobody else's does.
const ENDING: &str = "ckptd-upload";

#[derive(Debug, Serialize, Deserialize)]
struct Draft {
    /// As S3 calls the upload; None: there is none.
    upload: Option<String>,
}

fn path(object: &Object) -> Path {
    Path::from(format!("{}.{ENDING}", object.path))
}

/// Notes an upload.
pub(super) async fn note(object: &Object, upload: Option<&str>) -> Result<(), BucketError> {
    let draft = Draft { upload: upload.map(str::to_owned) };
    let text = serde_json::to_vec(&draft).map_err(std::io::Error::other)?;
    let put = object.store.put(&path(object), PutPayload::from(text)).await;
    put.map(drop).map_err(|error| object.told(&error))
}

/// There is no such upload any more. What another run has noted since stays.
pub(super) async fn forget(object: &Object, upload: &str) -> Result<(), BucketError> {
    match find(object).await? {
        Some(draft) if draft.upload.as_deref() == Some(upload) => remove(object).await,
        _ => Ok(()),
    }
}

/// Finds out whether one can be noted, read and removed.
pub(super) async fn check(object: &Object) -> Result<(), BucketError> {
    sweep(object).await?;
    note(object, None).await?;
    match find(object).await? {
        Some(Draft { upload: None }) => remove(object).await,
        // Another's.
        _ => Ok(()),
    }
}

async fn remove(object: &Object) -> Result<(), BucketError> {
    match object.store.delete(&path(object)).await {
        Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(object.told(&error)),
    }
}

async fn find(object: &Object) -> Result<Option<Draft>, BucketError> {
    let found = match object.store.get(&path(object)).await {
        Ok(found) => found,
        Err(error) => match object.told(&error) {
            BucketError::NotFound => return Ok(None),
            told => return Err(told),
        },
    };
    let text = match found.meta.size <= MOST {
        true => found.bytes().await.map_err(|error| object.told(&error))?,
        false => Default::default(),
    };
    let foreign = |_| BucketError::Foreign(path(object).to_string());
    serde_json::from_slice(&text).map(Some).map_err(foreign)
}

/// Aborts the upload that a run before has left.
pub(super) async fn sweep(object: &Object) -> Result<(), BucketError> {
    let Some(draft) = find(object).await? else { return Ok(()) };
    if let Some(upload) = draft.upload {
        match object.store.abort_multipart(&object.path, &upload).await {
            // It was completed or aborted.
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(object.told(&error)),
        }
    }
    remove(object).await
}
