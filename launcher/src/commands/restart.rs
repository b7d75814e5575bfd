//! `ckptd restart`.

use super::telling::{self, ON_A_CLUSTER, WITH_DMTCP};
use super::{Context, clustered, dmtcp, is_loud};
use crate::cli::{EngineSetting, RestartArguments};
use crate::failure::Failure;
use crate::jobs::{self, JobError, JobFolder};
use crate::output_file::{self, OutputFile};
use crate::session::detached;
use crate::session::{self, Begin, Session};
use ckpt_store::{Checkpoint, Damage};
use coordinator::History;
use protocol::agent::{CommitRecord, ExitKind};
use protocol::launch::RestoreSpec;
use std::ops::ControlFlow;
use std::path::Path;

pub fn perform(context: &Context, arguments: &RestartArguments) -> Result<u8, Failure> {
    super::refuse_lone_last(&arguments.options, arguments.detach)?;
    if let Some(cluster) = context.cluster_of(&arguments.job)? {
        if arguments.options.engine != EngineSetting::Native {
            return Err(other_engine());
        }
        telling::refuse_trace(&arguments.options, ON_A_CLUSTER)?;
        return clustered::restart(context, &cluster, arguments);
    }
    perform_alone(context, arguments)
}

fn other_engine() -> Failure {
    Failure::Usage(
        "wrong usage: a job keeps the engine that it was run with: leave --engine out".to_owned(),
    )
}

/// Restarts a job of this machine alone.
pub fn perform_alone(context: &Context, arguments: &RestartArguments) -> Result<u8, Failure> {
    let job = context.state.find_job(&arguments.job)?;
    if arguments.options.engine != job.record().settings.engine
        && arguments.options.engine != EngineSetting::Native
    {
        return Err(other_engine());
    }
    let is_native = job.record().settings.engine == EngineSetting::Native;
    if is_native {
        super::refuse_without_cluster(&arguments.options, false)?;
    }
    let name = job.name();
    let is_asked = arguments.detach && is_native;
    let staying = match detached::stay(is_asked, &format!("restart {name}"))? {
        ControlFlow::Continue(staying) => staying,
        ControlFlow::Break(status) => return Ok(status),
    };
    let _lock = job.lock().map_err(|error| match error {
        JobError::Running { .. } => Failure::of(
            format!("restart {name}"),
            format!("it is running; 'ckptd stop {name} --checkpoint' ends it"),
        ),
        other => other.into(),
    })?;
    if let Some(pid) = ckpt_engine::living_stranger(job.path()) {
        let reason = ckpt_engine::SessionError::Adopted(pid);
        return Err(Failure::of(format!("restart {name}"), reason));
    }
    let history = jobs::load(&job)?;
    let mut record = choose(&history, arguments, name)?;
    if job.record().settings.engine == EngineSetting::Dmtcp {
        telling::refuse_trace(&arguments.options, WITH_DMTCP)?;
        telling::refuse_calls(&arguments.options)?;
        return dmtcp::engine::restart(context, &job, record, arguments);
    }
    let _trace = telling::trace(&format!("restart {name}"), &arguments.options)?;
    let mut opened = Checkpoint::open(job.path(), record.checkpoint);
    if let (None, Err(Damage::Incomplete { number })) = (arguments.checkpoint, &opened) {
        // Killed between the log's record and the commit mark: nobody was told of this one yet.
        if let Some(previous) = before(&history, *number).next() {
            eprintln!(
                "ckptd: checkpoint {number} was not finished when ckptd was killed; going on from \
                 checkpoint {}",
                previous.checkpoint
            );
            opened = Checkpoint::open(job.path(), previous.checkpoint);
            record = previous;
        }
    }
    if let Err(damage) = opened {
        return Err(refused(&job, &history, record.checkpoint, &damage.to_string()));
    }
    let settings = job.record().settings.with(&arguments.options);
    let spec = RestoreSpec {
        checkpoint: record.checkpoint,
        force: arguments.force,
        external: settings.external,
        file_check: arguments.file_check.map(Into::into),
        window: session::window(),
    };
    let output = OutputFile::of(arguments.options.output.as_deref(), &format!("restart {name}"))?;
    let folder = Path::new(&job.record().working_directory);
    let hooks = context.caller(&arguments.options, folder, 0);
    context.call_about(&job, hooks.as_ref())?;
    let session = Session {
        job: &job,
        settings,
        begin: Begin::Restore(spec, Box::new(record.clone())),
        loud: is_loud(&arguments.options),
        resume: context.resume(arguments.options.comes_back),
        last: arguments.options.last_checkpoint(),
        commits: arguments.options.commits.clone(),
        hooks,
        held: arguments.options.held.clone(),
        staying,
    };
    let run = || session::run(session, context.start_agent);
    output_file::while_running(output, &job, run).map_err(|failure| match failure {
        // The engine checks each chunk only as it comes to it.
        Failure::Failed(text) => match older(&job, &history, record.checkpoint) {
            Some(offer) if text.starts_with("restart ") => Failure::Failed(text + &offer),
            _ => Failure::Failed(text),
        },
        other => other,
    })
}

/// The checkpoint to go on from.
fn choose<'a>(
    history: &'a History,
    arguments: &RestartArguments,
    name: &str,
) -> Result<&'a CommitRecord, Failure> {
    let what = format!("restart {name}");
    if let Some(number) = arguments.checkpoint {
        return history.record(number).ok_or_else(|| {
            let have: Vec<String> =
                history.committed().map(|(record, _)| record.checkpoint.to_string()).collect();
            let have = match have.as_slice() {
                [] => "it has none".to_owned(),
                have => format!("it has {}", have.join(", ")),
            };
            Failure::of(&what, format!("no checkpoint {number} is committed; {have}"))
        });
    }
    let newest =
        history.newest().ok_or_else(|| Failure::of(&what, "no checkpoint of it was committed"))?;
    // Its work is done; to do part of it again is hardly what is meant.
    if let Some(end) = history.end() {
        if end.status == Some(ExitKind::Exited(0)) && !end.asked && !arguments.force {
            return Err(Failure::of(
                &what,
                format!(
                    "it has ended by itself with status 0; to go back all the same: \
                     ckptd restart {name} --checkpoint {}",
                    newest.checkpoint
                ),
            ));
        }
    }
    Ok(newest)
}

/// The committed checkpoints before that one, newest first.
fn before(history: &History, number: u64) -> impl Iterator<Item = &CommitRecord> {
    history.committed().rev().map(|(record, _)| record).filter(move |r| r.checkpoint < number)
}

/// The offer of the newest whole checkpoint before that one, to follow the reason.
fn older(job: &JobFolder, history: &History, checkpoint: u64) -> Option<String> {
    let whole = |number: &u64| Checkpoint::open(job.path(), *number).is_ok();
    let number = before(history, checkpoint).map(|record| record.checkpoint).find(whole)?;
    let name = job.name();
    Some(format!("; checkpoint {number} is whole: ckptd restart {name} --checkpoint {number}"))
}

fn refused(job: &JobFolder, history: &History, checkpoint: u64, reason: &str) -> Failure {
    let offer = older(job, history, checkpoint).unwrap_or_default();
    let what = format!("restart {} from checkpoint {checkpoint}", job.name());
    Failure::of(what, format!("{reason}{offer}"))
}
