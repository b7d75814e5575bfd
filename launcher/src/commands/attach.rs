//! `ckptd attach`.

use super::target::Target;
use super::{Context, clustered, resume_command};
use crate::client::foreground::{self, Foreground, Host, InputFrom};
use crate::client::launcher::{AskError, ask_beginning, socket};
use crate::failure::Failure;
use crate::jobs;
use crate::session;
use protocol::cluster::client::Ask;
use std::time::Duration;

/// How long a job's launcher may take to say that it is there.
const LIMIT: Duration = Duration::from_secs(10);

/// The job's exit status.
pub fn perform(context: &Context, wanted: &str) -> Result<u8, Failure> {
    let what = format!("attach {wanted}");
    let job = match context.target(wanted)? {
        Target::Cluster(cluster) => return clustered::attach(context, &cluster, wanted),
        Target::Own(job) => job,
    };
    let name = job.name();
    if !job.is_running()? {
        // As one who was away when it ended: the status, and where to read the rest.
        return match jobs::load(&job)?.end().and_then(|end| end.status) {
            Some(status) => {
                eprintln!(
                    "ckptd: {name} has ended; what it has written is in its log, {}",
                    job.log().display()
                );
                Ok(status.shell_status())
            }
            None => {
                let resume = resume_command(context.asked_dir.as_deref(), name);
                Err(Failure::of(what, format!("it does not run; to go on with it: {resume}")))
            }
        };
    }
    // Whoever asks for more than a question would wake a launcher that its user has stopped.
    let id = job.id().to_owned();
    let status = Ask::Status { job: Some(id.clone()) };
    let begins = || job.is_running().unwrap_or(false);
    ask_beginning(job.path(), &status, Some(LIMIT), begins).map_err(|error| match error {
        AskError::Stopped => Failure::of(
            &what,
            "it is stopped: 'fg' in the shell that runs it lets it go on".to_owned(),
        ),
        other => Failure::of(&what, other),
    })?;
    foreground::run(Foreground {
        host: Host::Launcher(socket(job.path())),
        what,
        ask: Ask::Attach { job: id, window: session::window(), shown: None },
        input: InputFrom::Terminal,
        loud: super::is_loud(&crate::cli::JobOptions::default()),
        dir: context.asked_dir.clone(),
    })
}
