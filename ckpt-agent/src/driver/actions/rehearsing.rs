//! Rehearsals of restarts from images that lie here, beside the event loop and the job.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ckpt_node::Event;
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::rehearsal::{RehearsalOrder, RehearsedInstance};
use protocol::control::RehearsalOutcome;
use protocol::launch::External;
use protocol::task;

use super::Driver;
use super::failure::Failure;
use crate::driver::copies;
use crate::driver::user::User;
use crate::driver::wiring;
use ckpt_engine::job_init;
use ckpt_engine::session::{InstanceRehearsal, Rehearsed, SessionError, rehearse_instance};
use ckpt_store::CheckpointState;

/// How long one instance may take. The coordinator waits a little longer for each word.
const LIMIT: Duration = Duration::from_secs(600);
/// How long the mark of an image that was committed may take to get here.
const MARK_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks for it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Why nothing is rehearsed where the disk takes no key.
const NO_KEY: &str = "the key of its images could not be written";

/// An image here that is to be rehearsed.
struct Piece {
    folder: PathBuf,
    checkpoint: u64,
    external: External,
    instance: job_init::RehearsedInstance,
}

impl Driver {
    pub(super) fn rehearse(&self, order: RehearsalOrder) {
        let (whose, folders) = (self.whose(&order.user), self.parts.folders.clone());
        let watch = self.watch(&order.settings, AddressMap::default()).is_some();
        let (reports, keys) = (self.parts.reports.clone(), self.parts.keys.clone());
        task::spawn(async move {
            let RehearsalOrder { number, job, images, hosts, settings, .. } = order;
            let look_up = move || Ok::<_, Failure>(whose.look_up()?);
            let user = task::blocking(look_up).await;
            let loan = keys.lend(&job);
            for wanted in images {
                let result = match &user {
                    // A restore would be refused with the same words.
                    Err(failure) => Err(fails(failure)),
                    Ok(_) if loan.is_err() => Err(Lacking::Unknown(NO_KEY.to_owned())),
                    Ok(user) => {
                        let piece = Piece {
                            folder: folders.instance(&job, wanted.image.instance),
                            checkpoint: wanted.image.checkpoint,
                            external: settings.external,
                            instance: job_init::RehearsedInstance {
                                host_name: wanted.logical_node.to_string(),
                                hosts: hosts.to_string(),
                                user: user.as_ref().map(User::order),
                                watch,
                                own_files: Vec::new(),
                            },
                        };
                        piece.rehearse(&wanted.digest).await
                    }
                };
                let (outcome, warnings) = told(result);
                let instance = RehearsedInstance { image: wanted.image, outcome, warnings };
                reports.event(Event::Rehearsed(number, Some(instance)));
            }
            drop(loan);
            reports.event(Event::Rehearsed(number, None));
        });
    }
}

/// Why a rehearsal came to nothing.
enum Lacking {
    /// A restart would fail.
    Fails(String),
    /// That can't be told here.
    Unknown(String),
}

/// A restart would fail as this did.
fn fails(error: impl ToString) -> Lacking {
    Lacking::Fails(error.to_string())
}

impl Piece {
    async fn rehearse(self, digest: &str) -> Result<Rehearsed, Lacking> {
        let (folder, checkpoint) = (self.folder.clone(), self.checkpoint);
        let result = self.try_rehearse(digest).await;
        let is_there = || folder.join("checkpoints").join(checkpoint.to_string()).exists();
        match result {
            Err(_) if !is_there() => {
                let reason = "its image is not here, or was removed for a newer one";
                Err(Lacking::Unknown(reason.to_owned()))
            }
            result => result,
        }
    }

    async fn try_rehearse(self, digest: &str) -> Result<Rehearsed, Lacking> {
        let failed = |error: tokio::task::JoinError| Lacking::Unknown(error.to_string());
        let (folder, checkpoint) = (self.folder.clone(), self.checkpoint);
        task::spawn_blocking(move || wait_for_mark(&folder, checkpoint))
            .await
            .map_err(failed)??;
        let genuine = copies::must_be(&self.folder, checkpoint, digest).await;
        genuine.map_err(fails)?;
        // The kernel ends a rehearsal with the thread that has begun it, which does nothing else meanwhile.
        task::spawn_blocking(move || self.perform()).await.map_err(failed)?
    }

    fn perform(mut self) -> Result<Rehearsed, Lacking> {
        let (folder, checkpoint) = (self.folder, self.checkpoint);
        self.instance.own_files = copies::misplaced(&folder, checkpoint).map_err(fails)?;
        let alone = wiring::stand_ins(&folder, checkpoint).map_err(fails)?;
        let rehearsed = rehearse_instance(InstanceRehearsal {
            instance: self.instance,
            image_dir: folder,
            checkpoint,
            external: self.external,
            connections: alone.natives,
            limit: LIMIT,
        });
        // Until then nobody hears of an end.
        drop(alone.fars);
        rehearsed.map_err(|error: SessionError| {
            let reason = error.to_string().replace('\n', " ");
            match error.is_not_rehearsable() {
                true => Lacking::Unknown(reason),
                false => Lacking::Fails(reason),
            }
        })
    }
}

/// A commit is in the coordinator's log before its mark is here.
fn wait_for_mark(folder: &Path, checkpoint: u64) -> Result<(), Lacking> {
    let began = Instant::now();
    loop {
        let listed =
            ckpt_store::list(folder).map_err(|damage| Lacking::Unknown(damage.to_string()))?;
        match listed.into_iter().find(|found| found.number == checkpoint).map(|found| found.state) {
            Some(CheckpointState::Committed(_)) => return Ok(()),
            Some(CheckpointState::Damaged(damage)) => {
                return Err(Lacking::Fails(damage.to_string()));
            }
            Some(CheckpointState::Incomplete) | None if began.elapsed() > MARK_LIMIT => {
                return Err(Lacking::Unknown("its image has no mark of its commit".to_owned()));
            }
            Some(CheckpointState::Incomplete) | None => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

fn told(result: Result<Rehearsed, Lacking>) -> (RehearsalOutcome, Vec<String>) {
    match result {
        Ok(Rehearsed { processes, took, warnings }) => {
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            (RehearsalOutcome::Restorable { processes, took_ms }, warnings)
        }
        Err(Lacking::Fails(reason)) => (RehearsalOutcome::Failed(reason), Vec::new()),
        Err(Lacking::Unknown(reason)) => (RehearsalOutcome::Unknown(reason), Vec::new()),
    }
}
