//! What is asked before and after a job: whether archives can be kept, whether there is one.

use super::client::{Object, wait};
use super::connector::Patience;
use super::{Address, BucketError, draft};
use object_store::{Error, ObjectStoreExt};

/// Finds out, before a job begins, whether an archive can be written, read and removed there. What an upload before has
/// left unfinished is removed.
///
/// # Errors
/// Where it can't.
pub fn check(object: &Address) -> Result<(), BucketError> {
    let object = Object::of(object, Patience::FIRST)?;
    wait(async {
        draft::sweep(&object).await?;
        draft::note(&object, None).await?;
        draft::forget(&object).await
    })
}

/// Whether there is an archive.
///
/// # Errors
/// Where nobody tells.
pub fn exists(object: &Address) -> Result<bool, BucketError> {
    let object = Object::of(object, Patience::FIRST)?;
    wait(async {
        match object.store.head(&object.path).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(object.told(&error)),
        }
    })
}

/// Removes an archive, if there is one.
///
/// # Errors
/// Where it stays.
pub fn remove(object: &Address) -> Result<(), BucketError> {
    let object = Object::of(object, Patience::FIRST)?;
    wait(async {
        draft::sweep(&object).await?;
        match object.store.delete(&object.path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(object.told(&error)),
        }
    })
}
