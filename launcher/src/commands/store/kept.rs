//! Running a job that is kept in a store: what it goes on from comes from there, and unless it ends well, its newest checkpoint
//! goes there.

use super::{Beside, Found, Store, Unkept, patience, refuse_lone_keys};
use crate::cli::{EngineSetting, JobOptions, RestartArguments, RunArguments, THEN_EXIT};
use crate::client::last_checkpoint::LastCheckpoint;
use crate::client::resume::ComesBack;
use crate::cluster::Cluster;
use crate::commands::{Context, is_loud, restart, rm, run};
use crate::failure::Failure;
use crate::interrupts::{Held, Interrupts};
use crate::jobs;
use nix::sys::signal::Signal;
use protocol::cluster::client::Ask;
use serde_json::Value;
use std::sync::Arc;

/// The signal that tells of the machines' end, and what is done then.
pub struct Awaited {
    signal: i32,
    status: u8,
    /// The last checkpoint that it asks for.
    pub last: LastCheckpoint,
}

impl Awaited {
    /// As it is asked for; by default SIGUSR1, and 85.
    pub fn of(options: &JobOptions) -> Self {
        let signal = options.checkpoint_on.unwrap_or(nix::libc::SIGUSR1);
        let status = options.then_exit.unwrap_or(THEN_EXIT);
        Self { signal, status, last: LastCheckpoint::new(signal, status) }
    }

    /// Holds it up, with those that would end the process.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn hold(&self) -> Result<Interrupts, Failure> {
        Interrupts::hold_also(Signal::try_from(self.signal).ok())
    }

    /// Whether it is this one.
    pub fn is(&self, signal: u8) -> bool {
        i32::from(signal) == self.signal
    }

    /// The status to end with at a signal that came before the job ran: then there is nothing newer than what the store has.
    pub fn status_at(&self, signal: u8) -> u8 {
        if self.is(signal) { self.status } else { signal.saturating_add(128) }
    }
}

/// How the run of a job ended.
pub enum End {
    /// Before the job ran, by a signal.
    At(u8),
    /// By itself, or by an order; the status to end with.
    Of(Result<u8, Failure>),
}

/// Runs a job, or goes on with what the store has of it, until it ends. `watches`: what else is watched for as long as it runs,
/// made before it begins.
pub fn run_until_end<W>(
    context: &Context,
    store: &Arc<Store>,
    (mut arguments, mut interrupts): (RunArguments, Interrupts),
    watches: impl FnOnce(&Arc<Beside>) -> Result<W, Failure>,
) -> Result<(End, Arc<Beside>, W), End> {
    let is_kept = match store.bring(context, &mut interrupts) {
        Ok(Found::Job) => true,
        Ok(Found::Nothing) => false,
        Ok(Found::Interrupted(signal)) => return Err(End::At(signal)),
        Err(failure) => return Err(End::Of(Err(failure))),
    };
    let beside = Arc::new(Beside::start(store, context, is_loud(&arguments.options)));
    // Its threads hold up signals as this one does.
    let watch = watches(&beside).map_err(|failure| End::Of(Err(failure)))?;
    let held = Held::of(interrupts);
    arguments.options.held = held.clone();
    arguments.options.commits = beside.on_commit();
    arguments.options.comes_back = ComesBack::BySameCommand;
    let status = begin(context, store, arguments, is_kept);
    let end = held.came().map_or(End::Of(status), End::At);
    if let (End::At(_), true) = (&end, is_kept) {
        // It is in the store as it was brought here.
        forget(context, store.here());
    }
    Ok((end, beside, watch))
}

fn begin(
    context: &Context,
    store: &Store,
    mut arguments: RunArguments,
    is_kept: bool,
) -> Result<u8, Failure> {
    let name = store.here().to_owned();
    if !is_kept {
        arguments.name = Some(name);
        return run::perform(context, arguments);
    }
    let arguments = RestartArguments {
        job: name,
        checkpoint: None,
        force: false,
        file_check: None,
        detach: false,
        options: arguments.options,
    };
    restart::perform(context, &arguments)
}

/// What there is here of a job that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing that is needed: the store has it, or it has ended well.
    Nothing,
    /// A checkpoint that could not be kept in the store.
    Checkpoint,
    /// The same, and the store fails and has nothing to go on from.
    OnlyCheckpoint,
    /// What is no use to go on from.
    Record,
}

/// Keeps a job that has ended with this status, or removes what was kept of it, where it ended well. Also tells what is here
/// of it still.
pub fn settle(
    context: &Context,
    store: &Store,
    status: Result<u8, Failure>,
    last: &LastCheckpoint,
) -> (Result<u8, Failure>, Left) {
    if let (Ok(0), false) = (&status, last.is_taken()) {
        let removed = store.remove();
        let left = if removed.is_ok() { Left::Nothing } else { Left::Record };
        return (removed.and(status), left);
    }
    // The job's own end is what is told then; where it was not to end, the loss is.
    if !last.is_taken() {
        if !has_checkpoint(context, store.here()) {
            return (status, Left::Record);
        }
        return match store.keep(context).map_err(Failure::from) {
            Ok(()) => (status, Left::Nothing),
            Err(error) => {
                eprintln!("ckptd: {error}");
                (status, Left::Checkpoint)
            }
        };
    }
    match patience::keep_last(context, store) {
        Ok(()) => (status, Left::Nothing),
        Err(Unkept::Interrupted(error)) => (Err(error), Left::Checkpoint),
        Err(Unkept::Failed(error)) => {
            let left = if store.is_empty() { Left::OnlyCheckpoint } else { Left::Checkpoint };
            (Err(error), left)
        }
    }
}

/// Whether there is a checkpoint of it; where that is not known, it may be.
fn has_checkpoint(context: &Context, job: &str) -> bool {
    let newest = || -> Result<bool, Failure> {
        if let Some(cluster) = context.cluster_of(job)? {
            // What is not there can't be exported either, and that is told.
            let Ok(status) = listed(&cluster, job) else { return Ok(true) };
            let listed = status.get("checkpoints").and_then(Value::as_array);
            return Ok(listed.is_none_or(|listed| !listed.is_empty()));
        }
        let job = context.state.find_job(job)?;
        Ok(jobs::load(&job)?.newest().is_some())
    };
    newest().unwrap_or(false)
}

/// Whether a job of the cluster runs on though its command ends: the terminal is gone, or the connection was lost.
fn runs_on(context: &Context, job: &str) -> bool {
    let Ok(Some(cluster)) = context.cluster_of(job) else { return false };
    let Ok(status) = listed(&cluster, job) else { return false };
    status.get("over_at_ms").is_some_and(Value::is_null)
}

/// What the cluster tells of a job.
fn listed(cluster: &Cluster, job: &str) -> Result<Value, Failure> {
    cluster.listing("look how the job is", &Ask::Status { job: Some(job.to_owned()) })
}

/// `ckptd run --store`.
pub fn perform(context: &Context, mut arguments: RunArguments) -> Result<u8, Failure> {
    let kept = arguments.store.take();
    if kept.store.is_none() {
        refuse_lone_keys(&kept)?;
        return run::perform(context, arguments);
    }
    refuse_options(&arguments)?;
    let awaited = Awaited::of(&arguments.options);
    arguments.options.last = Some(awaited.last.clone());
    let mut interrupts = awaited.hold()?;
    let name = arguments.name.clone().unwrap_or_default();
    let store = Store::of(&kept, &name, &interrupts)
        .and_then(|store| store.map(|store| store.beside_others(context)).transpose());
    let store = match (store, interrupts.came()) {
        (_, Some(signal)) => return Ok(awaited.status_at(signal)),
        (Err(failure), None) => return Err(failure),
        (Ok(None), None) => return run::perform(context, arguments),
        (Ok(Some(store)), None) => Arc::new(store),
    };
    let ran = run_until_end(context, &store, (arguments, interrupts), |_| Ok(()));
    let status = match ran {
        Err(End::At(signal)) | Ok((End::At(signal), ..)) => return Ok(awaited.status_at(signal)),
        Err(End::Of(status)) => return status,
        Ok((End::Of(status), beside, ())) => {
            // What is on its way there is older than what comes now.
            drop(beside);
            status
        }
    };
    if runs_on(context, store.here()) {
        eprintln!(
            "ckptd: the job runs on, and nobody keeps it: 'ckptd stop --checkpoint {0}' ends it, 'ckptd export {0} FILE' \
             keeps it",
            store.here()
        );
        return status;
    }
    let (status, left) = settle(context, &store, status, &awaited.last);
    match left {
        Left::Nothing => forget(context, store.here()),
        Left::Checkpoint | Left::OnlyCheckpoint => {
            let resume = context.resume_command(store.here());
            eprintln!("ckptd: job {} is here; resume with: {resume}", store.here());
        }
        Left::Record => {}
    }
    status
}

/// Refuses what can't be kept.
fn refuse_options(arguments: &RunArguments) -> Result<(), Failure> {
    let text = if arguments.detach {
        "--store is for a command that stays: leave --detach out"
    } else if arguments.options.engine != EngineSetting::Native {
        "--store is for the native engine: leave it or --engine dmtcp out"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(format!("wrong usage: {text}")))
}

/// Removes a job here that the store has, or that has come to its end.
pub fn forget(context: &Context, job: &str) {
    if let Err(error) = rm::of_names(context, &[job.to_owned()]) {
        eprintln!("ckptd: warning: {error}");
    }
}
