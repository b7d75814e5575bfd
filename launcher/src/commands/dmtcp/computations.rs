//! Computations of DMTCP's processes that a cluster's coordinator serves: each is a job of the coordinator's machine.

use super::records::{JobRecorder, RecordsError, images};
use crate::cli::{CoordinatorArguments, EngineSetting, IntervalSetting};
use crate::commands::Context;
use crate::failure::Failure;
use crate::jobs::{JobFolder, JobLock, JobSettings, StateDir};
use ckpt_dmtcp::cluster::Cluster;
use ckpt_dmtcp::machine::{Checkpoint, Identity, Notice};
use ckpt_dmtcp::server::{Options, RecordError, Recorder};
use coordinator::server::DmtcpOptions;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// The file in a job's folder that names its computation.
const GROUP: &str = "group";

/// The port that the command line asks for.
pub fn port(
    context: &Context,
    arguments: &CoordinatorArguments,
    port: u16,
) -> Result<DmtcpOptions, Failure> {
    let directory = match &arguments.dmtcp_ckptdir {
        Some(directory) => directory.clone(),
        None => context.state.path().join("dmtcp"),
    };
    let what = || format!("make {}", directory.display());
    let directory = std::path::absolute(&directory).map_err(|error| Failure::of(what(), error))?;
    fs::create_dir_all(&directory).map_err(|error| Failure::of(what(), error))?;
    let listen = arguments.dmtcp_listen.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let options = Options {
        listen: SocketAddr::new(listen, port),
        allow: arguments.dmtcp_allow.clone(),
        // A year at most.
        interval: u32::try_from(arguments.dmtcp_interval.as_secs()).unwrap_or(u32::MAX),
        quits: false,
        departed_after: arguments.dmtcp_departed_after,
        ..Options::local(port, directory)
    };
    let state = StateDir::find(Some(context.state.path().to_owned()))?;
    let recorder = Computations { state, current: None, cluster: None };
    Ok(DmtcpOptions { port: options, recorder: Arc::new(Mutex::new(recorder)) })
}

/// Keeps the computation that is served.
struct Computations {
    /// Where jobs are kept.
    state: StateDir,
    current: Option<Current>,
    cluster: Option<Cluster>,
}

struct Current {
    group: Identity,
    recorder: JobRecorder,
    /// Whether it is ended because of a lost machine, to be restarted.
    returns: bool,
    _lock: JobLock,
}

impl Computations {
    fn begin(&mut self, group: Identity, program: &str) -> Result<(), Failure> {
        if let Some(current) = self.current.as_mut().filter(|known| known.group.is_of(&group)) {
            // Agents restart it.
            current.group = group;
            let from = current.recorder.newest();
            return current.recorder.begin(from);
        }
        let (told, _) = mpsc::unbounded_channel();
        let (job, lock) = match self.known(group) {
            Some(job) => {
                let lock = job.lock()?;
                (job, lock)
            }
            None => {
                let settings = JobSettings {
                    engine: EngineSetting::Dmtcp,
                    interval: IntervalSetting::Seconds(0.0),
                    ..JobSettings::default()
                };
                let (job, lock) =
                    self.state.create(None, &[program.into()], Path::new("/"), settings)?;
                let failed = |error| Failure::of(format!("keep {}", job.name()), error);
                fs::create_dir_all(images(&job).folder()).map_err(failed)?;
                fs::write(images(&job).folder().join(GROUP), group.to_string()).map_err(failed)?;
                (job, lock)
            }
        };
        let keep = job.record().settings.keep as usize;
        let mut recorder = JobRecorder::open(&job, keep, told)?.with(self.cluster.clone());
        let from = recorder.newest();
        recorder.begin(from)?;
        tracing::info!("DMTCP's computation {group} is the job {}", job.name());
        self.current = Some(Current { group, recorder, returns: false, _lock: lock });
        Ok(())
    }

    /// Some of its processes are lost with their machine: the others are ended, and all restarted where images are.
    fn lost(&mut self, group: Identity, peers: usize) {
        // All were there: then it has ended before anybody knew why.
        let ended = self.current.is_none();
        if ended {
            // No job was made of it, so nothing of it is kept.
            if self.known(group).is_none() {
                return;
            }
            if let Err(failure) = self.begin(group, "") {
                return tracing::error!("{failure}: DMTCP's computation {group} is not restarted");
            }
        }
        self.go_back(peers);
        if ended && !self.restarts() {
            self.current = None;
        }
    }

    fn go_back(&mut self, peers: usize) {
        // Only a cluster's agents can restart, and only what they keep for a job.
        let (Some(current), Some(cluster)) = (&mut self.current, &self.cluster) else { return };
        match current.recorder.is_with_agents() {
            Ok(()) => {
                current.returns = true;
                tracing::info!(
                    "{peers} of its processes are lost: DMTCP's computation {} goes back to its newest checkpoint",
                    current.group
                );
                cluster.kill();
            }
            Err(reason) => {
                tracing::warn!("DMTCP's computation {} is not restarted: {reason}", current.group)
            }
        }
    }

    /// Once all have ended: whether it is restarted.
    fn restarts(&mut self) -> bool {
        let Some(current) = self.current.as_mut().filter(|current| current.returns) else {
            return false;
        };
        current.returns = false;
        match current.recorder.return_by_agents() {
            Ok(()) => true,
            Err(reason) => {
                tracing::error!(
                    "failed to restart DMTCP's computation {}: {reason}",
                    current.group
                );
                false
            }
        }
    }

    /// The job of a computation that was here before.
    fn known(&self, group: Identity) -> Option<JobFolder> {
        let name = group.to_string();
        let is_it = |job: &JobFolder| {
            job.record().settings.engine == EngineSetting::Dmtcp
                && fs::read_to_string(images(job).folder().join(GROUP))
                    .is_ok_and(|group| group == name)
        };
        self.state.jobs(|_| {}).ok()?.into_iter().rev().find(is_it)
    }
}

impl Recorder for Computations {
    fn cluster(&mut self, cluster: Cluster) {
        self.cluster = Some(cluster);
    }

    fn commit(&mut self, checkpoint: &Checkpoint) -> Result<(), RecordError> {
        match &mut self.current {
            Some(current) if current.group.is_of(&checkpoint.group) => {
                current.recorder.commit(checkpoint)
            }
            _ => Err(RecordsError::NoJob.into()),
        }
    }

    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Began { group, program, .. } => {
                if let Err(failure) = self.begin(*group, program) {
                    self.current = None;
                    tracing::error!(
                        "{failure}: no checkpoint of DMTCP's computation {group} will count"
                    );
                }
            }
            Notice::HostLost { group, peers } => self.lost(*group, *peers),
            Notice::Ended { .. } if self.restarts() => {}
            Notice::Ended { asked, .. } => {
                if let Some(mut current) = self.current.take() {
                    if let Err(error) = current.recorder.end(None, *asked) {
                        tracing::error!("failed to write to the job's log: {error}");
                    }
                }
            }
            _ => {}
        }
    }
}
