//! `ckptd rm`.

use super::{Context, clustered};
use crate::failure::Failure;
use crate::jobs::{JobError, JobFolder};

pub fn perform(context: &Context, wanted: &[String]) -> Result<(), Failure> {
    let mut own = Vec::new();
    for job in wanted {
        match context.cluster_of(job)? {
            Some(cluster) => clustered::remove(&cluster, job)?,
            None => own.push(job),
        }
    }
    // All are found before the first is removed, so that a slip removes none.
    let jobs = own
        .iter()
        .map(|wanted| context.state.find_job(wanted))
        .collect::<Result<Vec<JobFolder>, JobError>>()?;
    for job in &jobs {
        let name = job.name();
        let what = format!("remove {name}");
        let _lock = match job.lock() {
            // Named twice.
            Err(JobError::Io { .. }) if !job.path().exists() => continue,
            Err(JobError::Running { .. }) => {
                return Err(Failure::of(
                    what,
                    format!("it is running; 'ckptd stop {name}' ends it"),
                ));
            }
            other => other?,
        };
        if let Err((folder, error)) = ckpt_engine::remove_temporary(job.path()) {
            eprintln!(
                "ckptd: warning: the temporary folder {} of {name} stays: {error}",
                folder.display()
            );
        }
        std::fs::remove_dir_all(job.path()).map_err(|error| Failure::of(&what, error))?;
    }
    Ok(())
}
