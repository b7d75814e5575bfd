//! `ckptd stop`.

use super::{Context, clustered};
use crate::client::launcher::ask_beginning;
use crate::cluster::unexpected;
use crate::failure::Failure;
use protocol::cluster::client::{Answer, Ask};

pub fn perform(context: &Context, job: &str, checkpoint: bool) -> Result<(), Failure> {
    if let Some(cluster) = context.cluster_of(job)? {
        return clustered::stop(context, &cluster, job, checkpoint);
    }
    let job = context.state.find_job(job)?;
    let name = job.name();
    let what = format!("stop {name}");
    let begins = || job.is_running().unwrap_or(false);
    let ask = Ask::Stop { job: job.id().to_owned(), checkpoint };
    let answer =
        ask_beginning(job.path(), &ask, None, begins).map_err(|error| Failure::of(&what, error))?;
    match answer {
        Answer::Ended { checkpoint: Some(_), .. } => {
            let resume = context.resume_command(name);
            eprintln!("ckptd: job {name} stopped; resume with: {resume}");
            Ok(())
        }
        Answer::Ended { checkpoint: None, .. } => {
            eprintln!("ckptd: job {name} stopped; it has no committed checkpoint");
            Ok(())
        }
        Answer::Failed { reason, .. } => Err(Failure::Failed(reason)),
        other => Err(unexpected(&what, &other)),
    }
}
