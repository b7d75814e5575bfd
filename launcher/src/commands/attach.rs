//! `ckptd attach`.

use super::target::Target;
use super::{Context, is_loud};
use crate::cli::JobOptions;
use crate::client::foreground::{self, Foreground, Host, InputFrom};
use crate::client::launcher::{AskError, ask_beginning, socket};
use crate::client::resume::ComesBack;
use crate::failure::Failure;
use crate::interrupts::Held;
use crate::jobs::{self, JobError, JobFolder};
use crate::session;
use protocol::agent::ExitKind;
use protocol::cluster::client::Ask;
use std::time::Duration;

/// How long a job's launcher may take to say that it is there.
const LIMIT: Duration = Duration::from_secs(10);

/// The job's exit status.
pub fn perform(context: &Context, wanted: &str) -> Result<u8, Failure> {
    let what = format!("attach {wanted}");
    let (host, job, own) = match context.target(wanted)? {
        Target::Cluster(cluster) => (cluster.host(), wanted.to_owned(), None),
        Target::Own(job) if job.is_running()? => {
            refuse_stopped(&job, &what)?;
            (Host::Launcher(socket(job.path())), job.id().to_owned(), Some(job))
        }
        Target::Own(job) => return away(context, &job, what),
    };
    let shown = foreground::run(Foreground {
        host,
        what: what.clone(),
        ask: Ask::Attach { job, window: session::window(), shown: None },
        input: InputFrom::Terminal,
        loud: is_loud(&JobOptions::default()),
        resume: context.resume(ComesBack::default()),
        last: None,
        commits: None,
        held: Held::default(),
        hooks: None,
        output: None,
    });
    match (shown, own) {
        // Its launcher may be gone, with the job, before it has told everybody.
        (Err(failure), Some(job))
            if !failure.is_broken_pipe() && matches!(end_of(&job), Ok(Some(_))) =>
        {
            away(context, &job, what)
        }
        (shown, _) => shown,
    }
}

/// How a job has ended by itself; `None`: it has not, as far as its folder tells.
fn end_of(job: &JobFolder) -> Result<Option<ExitKind>, JobError> {
    Ok(jobs::load(job)?.end().and_then(|end| end.status))
}

/// As one who was away when the job ended: the status, and where to read the rest.
fn away(context: &Context, job: &JobFolder, what: String) -> Result<u8, Failure> {
    let name = job.name();
    match end_of(job)? {
        Some(status) => {
            eprintln!(
                "ckptd: {name} has ended; what it has written is in its log, {}",
                job.log().display()
            );
            Ok(status.shell_status())
        }
        None => {
            let resume = context.resume_command(name);
            Err(Failure::of(what, format!("it does not run; to go on with it: {resume}")))
        }
    }
}

/// Whoever asks for more than a question would wake a launcher that its user has stopped.
fn refuse_stopped(job: &JobFolder, what: &str) -> Result<(), Failure> {
    let status = Ask::Status { job: Some(job.id().to_owned()) };
    let begins = || job.is_running().unwrap_or(false);
    match ask_beginning(job.path(), &status, Some(LIMIT), begins) {
        Ok(_) => Ok(()),
        Err(AskError::Stopped) => {
            Err(Failure::of(what, "it is stopped: 'fg' in the shell that runs it lets it go on"))
        }
        Err(other) => Err(Failure::of(what, other)),
    }
}
