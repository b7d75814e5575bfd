//! `ckptd stop`.

use super::{Context, clustered};
use crate::control::ask_beginning;
use crate::failure::Failure;
use protocol::control::{Reply, Request};

pub fn perform(context: &Context, job: &str, checkpoint: bool) -> Result<(), Failure> {
    if let Some(cluster) = context.cluster_of(job)? {
        return clustered::stop(context, &cluster, job, checkpoint);
    }
    let job = context.state.find_job(job)?;
    let name = job.name();
    let what = format!("stop {name}");
    let begins = || job.is_running().unwrap_or(false);
    let reply = ask_beginning(job.path(), &Request::Stop { checkpoint }, None, begins)
        .map_err(|error| Failure::of(&what, error))?;
    match reply {
        Reply::Ended { checkpoint: Some(_), .. } => {
            let resume = context.resume_command(name);
            eprintln!("ckptd: job {name} stopped; resume with: {resume}");
            Ok(())
        }
        Reply::Ended { checkpoint: None, .. } => {
            eprintln!("ckptd: job {name} stopped; it has no committed checkpoint");
            Ok(())
        }
        Reply::Failed(reason) => Err(Failure::Failed(reason)),
        other => Err(Failure::of(what, format!("unexpected answer {other:?}"))),
    }
}
