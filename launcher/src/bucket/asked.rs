//! What is asked before and after a job: whether archives can be kept, whether there is one.

use super::client::{Object, unless, wait};
use super::connector::Patience;
use super::{Address, BucketError, Claim, GiveUp, claim, draft};
use object_store::{Error, ObjectStoreExt};

/// Finds out, before a job begins, whether an archive can be written, read and removed there. What an upload before has
/// left unfinished is removed.
///
/// # Errors
/// Where it can't, or it is given up.
pub fn check(object: &Address, give_up: &GiveUp) -> Result<(), BucketError> {
    let object = Object::of(object, Patience::SMALL)?;
    wait(unless(give_up, draft::check(&object)))
}

/// Whether there is an archive.
///
/// # Errors
/// Where nobody tells, or it is given up.
pub fn exists(object: &Address, give_up: &GiveUp) -> Result<bool, BucketError> {
    let object = Object::of(object, Patience::SMALL)?;
    wait(unless(give_up, async {
        match object.store.head(&object.path).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(object.told(&error)),
        }
    }))
}

/// Removes an archive that is claimed, if there is one.
///
/// # Errors
/// Where it stays, or it is given up.
pub fn remove(object: &Address, own: &Claim, give_up: &GiveUp) -> Result<(), BucketError> {
    let object = Object::of(object, Patience::SMALL)?;
    wait(unless(give_up, async {
        claim::check(&object, own.run()).await?;
        draft::sweep(&object).await?;
        match object.store.delete(&object.path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(object.told(&error)),
        }
    }))
}
