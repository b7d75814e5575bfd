//! A claim on an archive: as long as a job runs that is kept there, no other run of its name replaces it.
//!
//! S3 has no locks. A claim is an object beside the archive, which is put there only where none is, and renewed while the run
//! lives. Whoever finds one that is not renewed takes it over, and only where it is still the one that was found. A run that
//! stood still for so long finds the other's there before it completes an upload, and does not.

use super::client::{Object, unless, wait};
use super::connector::Patience;
use super::{Address, BucketError, GiveUp};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use protocol::clock::wall_ms;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How its name ends.
const ENDING: &str = "ckptd-run";
/// The longest claim that is read.
const MOST: u64 = 16 * 1024;
/// Between two renewals.
const RENEWING: Duration = Duration::from_secs(20);
/// How long one may take.
const RENEWAL: Duration = Duration::from_secs(15);
/// After so long one that has failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// After so long without, its run is over. Several renewals may fail before.
const LASTS: Duration = Duration::from_secs(90);
/// Between two looks at another run's.
const LOOK: Duration = Duration::from_secs(1);
/// How long it may take to remove one.
const REMOVING: Duration = Duration::from_secs(5);
/// What servers answer that know no conditions.
const UNKNOWN: &str = "NotImplemented";

/// What a claim says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Said {
    /// Which run it is; no other one is called so.
    run: String,
    host: String,
    /// With each renewal one more, so that it differs from the one before.
    renewals: u64,
}

/// One that is there, as the server tells of it.
struct Found {
    said: Said,
    version: UpdateVersion,
    renewed: SystemTime,
}

/// A claim of this process's. Dropped, it goes.
#[derive(Debug)]
pub struct Claim {
    said: Said,
    /// Ends the renewals.
    over: Option<Sender<()>>,
    renewals: Option<JoinHandle<()>>,
    object: Arc<Object>,
}

impl Claim {
    /// Claims an archive. Where there is a claim already, it is told once its run shows that it lives; one that does not is
    /// waited for. `tells`: is told of that.
    ///
    /// # Errors
    /// Where it is another's, the server refuses, or it is given up.
    pub fn take(
        address: &Address,
        give_up: &GiveUp,
        tells: impl Fn(&str),
    ) -> Result<Self, BucketError> {
        let object = Arc::new(Object::of(address, Patience::SMALL)?);
        let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
        let run = format!("{host}/{}/{}", std::process::id(), wall_ms());
        let said = Said { run, host, renewals: 0 };
        wait(unless(give_up, take(&object, &said, tells)))?;
        let (over, ends) = mpsc::channel();
        let mut own = Self { said, over: Some(over), renewals: None, object };
        let (object, said) = (own.object.clone(), own.said.clone());
        let thread = std::thread::Builder::new().name("claim".to_owned());
        own.renewals = Some(thread.spawn(move || {
            let mut said = said;
            let mut renewed = SystemTime::now();
            let mut pause = RENEWING;
            while ends.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                said.renewals += 1;
                // By the clock that goes on while a machine sleeps. After that, another run may have come and gone.
                let has_lapsed = !renewed.elapsed().is_ok_and(|since| since < LASTS);
                let at = SystemTime::now();
                // What fails now may not the next time. Another's stays there, and is found before anything is replaced.
                pause = match wait(within(RENEWAL, renew(&object, &said, has_lapsed))) {
                    Ok(()) => {
                        renewed = at;
                        RENEWING
                    }
                    Err(_) => AGAIN,
                };
            }
        })?);
        Ok(own)
    }

    /// What uploads are told by which they know that it still is this run's.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.said.run
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.over = None;
        let since = Instant::now();
        let object = self.object.clone();
        let (run, renewals) = (self.said.run.clone(), self.renewals.take());
        let removal = async move {
            // One that is on its way would put it there again.
            while renewals.as_ref().is_some_and(|thread| !thread.is_finished()) {
                tokio::time::sleep(REMOVING / 100).await;
            }
            check(&object, &run).await?;
            object.store.delete(&path(&object)).await.map_err(|error| object.told(&error))
        };
        // Where that can't be, it ends by itself.
        let _ = wait(unless(&GiveUp::when(move || since.elapsed() > REMOVING), removal));
    }
}

/// Whether the claim on that object is that run's.
///
/// # Errors
/// Where it is another's, or nobody tells.
pub(super) async fn check(object: &Object, run: &str) -> Result<(), BucketError> {
    match find(object).await? {
        Some(found) if found.said.run == run => Ok(()),
        Some(found) => Err(BucketError::Claimed(found.said.host)),
        // Another run may have claimed it, and have ended.
        None => Err(BucketError::Lapsed),
    }
}

async fn take(object: &Object, said: &Said, tells: impl Fn(&str)) -> Result<(), BucketError> {
    // The other's, as it was at first, and when it is no longer waited for.
    let mut other: Option<(Option<String>, Instant)> = None;
    loop {
        let Some(found) = find(object).await? else {
            match put(object, said, PutMode::Create).await? {
                true => return Ok(()),
                false => continue,
            }
        };
        if found.said.run == said.run {
            // The answer to an earlier try was lost.
            return Ok(());
        }
        let tag = found.version.e_tag.clone();
        let (first, until) = match &other {
            Some(other) => other,
            None => {
                let left = LASTS.saturating_sub(age(object, &found, said).await?);
                if !left.is_zero() {
                    let host = &found.said.host;
                    tells(&format!(
                        "a run of this job on {host} has not ended in order: it may run still, which is known within {} s",
                        left.as_secs()
                    ));
                }
                other.insert((tag.clone(), Instant::now() + left))
            }
        };
        if *first != tag {
            return Err(BucketError::Claimed(found.said.host));
        }
        if Instant::now() >= *until && put(object, said, PutMode::Update(found.version)).await? {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// How long ago a claim was renewed, by the server's clock alone: that of an object which is put there for that.
async fn age(object: &Object, found: &Found, said: &Said) -> Result<Duration, BucketError> {
    let probe = Path::from(format!("{}-{}", path(object), said.run.replace('/', "-")));
    let failed = |error: &Error| object.told(error);
    object.store.put(&probe, PutPayload::new()).await.map_err(|error| failed(&error))?;
    let now = object.store.head(&probe).await.map_err(|error| failed(&error))?;
    object.store.delete(&probe).await.map_err(|error| failed(&error))?;
    Ok(SystemTime::from(now.last_modified).duration_since(found.renewed).unwrap_or_default())
}

async fn within(
    limit: Duration,
    asked: impl Future<Output = Result<(), BucketError>>,
) -> Result<(), BucketError> {
    tokio::time::timeout(limit, asked).await.unwrap_or(Err(BucketError::GivenUp))
}

async fn renew(object: &Object, said: &Said, has_lapsed: bool) -> Result<(), BucketError> {
    let mode = match find(object).await? {
        Some(found) if found.said.run == said.run => PutMode::Update(found.version),
        Some(found) => return Err(BucketError::Claimed(found.said.host)),
        None if has_lapsed => return Err(BucketError::Lapsed),
        None => PutMode::Create,
    };
    match put(object, said, mode).await? {
        true => Ok(()),
        // It has changed since it was looked at: the next look tells to whom.
        false => Err(BucketError::Lapsed),
    }
}

fn path(object: &Object) -> Path {
    Path::from(format!("{}.{ENDING}", object.path))
}

async fn find(object: &Object) -> Result<Option<Found>, BucketError> {
    let path = path(object);
    let failed = |error: Error| match object.told(&error) {
        BucketError::NotFound => Ok(None),
        told => Err(told),
    };
    let found = match object.store.get(&path).await {
        Ok(found) => found,
        Err(error) => return failed(error),
    };
    let (renewed, size) = (SystemTime::from(found.meta.last_modified), found.meta.size);
    let version =
        UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
    let text = match size <= MOST {
        true => found.bytes().await.map_err(|error| object.told(&error))?,
        false => Default::default(),
    };
    match serde_json::from_slice(&text) {
        Ok(said) => Ok(Some(Found { said, version, renewed })),
        Err(_) => Err(BucketError::Foreign(path.to_string())),
    }
}

/// Puts a claim there on that condition; whether it was met. Servers that know no conditions put it there in any case: of two
/// that claim at once, the one whose claim does not stay then finds that out before it replaces anything.
async fn put(object: &Object, said: &Said, mode: PutMode) -> Result<bool, BucketError> {
    let text = serde_json::to_vec(said).map_err(std::io::Error::other)?;
    let path = path(object);
    let put = |mode: PutMode| object.store.put_opts(&path, text.clone().into(), mode.into());
    match put(mode).await {
        Ok(_) => Ok(true),
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
        Err(error) => match object.told(&error) {
            BucketError::Other { cause, .. } if cause == UNKNOWN => {
                let put = put(PutMode::Overwrite).await;
                put.map(|_| true).map_err(|error| object.told(&error))
            }
            told => Err(told),
        },
    }
}
