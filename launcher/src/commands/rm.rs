//! `ckptd rm`.

use super::summary::JobSummary;
use super::{Context, clustered, print};
use crate::cli::RmArguments;
use crate::failure::Failure;
use crate::jobs::{JobError, JobFolder};
use crate::text;
use coordinator::End;
use protocol::agent::ExitKind;
use protocol::database::users;
use serde_json::Value;
use std::time::Duration;

pub fn perform(context: &Context, arguments: &RmArguments) -> Result<(), Failure> {
    if arguments.ended {
        let whose = if arguments.all_users { Whose::All } else { Whose::Own };
        return remove_ended(context, arguments.older.unwrap_or_default(), whose);
    }
    of_names(context, &arguments.jobs)
}

/// Forgets these jobs.
pub fn of_names(context: &Context, wanted: &[String]) -> Result<(), Failure> {
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
    jobs.iter().try_for_each(remove)
}

/// Whose jobs are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// The caller's.
    Own,
    /// Those of all users, as far as the coordinator lists them.
    All,
}

/// Forgets those jobs that have ended by themselves and so long ago, and tells which.
fn remove_ended(context: &Context, older: Duration, whose: Whose) -> Result<(), Failure> {
    let before =
        text::now_ms().saturating_sub(u64::try_from(older.as_millis()).unwrap_or(u64::MAX));
    if let Some(cluster) = context.cluster()? {
        // Operators see the jobs of all.
        let own = users::name_of(nix::unistd::geteuid().as_raw());
        let listed = clustered::jobs(&cluster)?;
        let mut refused = Vec::new();
        for job in listed.as_array().into_iter().flatten() {
            let text = |key: &str| job.get(key).and_then(Value::as_str);
            let ended = job.pointer("/end/at_ms").and_then(Value::as_u64);
            let status = job.pointer("/end/status").cloned().unwrap_or_default();
            let is_meant = text("state") == Some("ended")
                && is_by_itself(protocol::json::of_value(&status).ok())
                && (whose == Whose::All || text("user") == Some(own.as_str()))
                && ended.is_some_and(|at| at <= before);
            if let (true, Some(id)) = (is_meant, text("id")) {
                let name = text("name").unwrap_or(id);
                let name = match (whose, text("user")) {
                    (Whose::All, Some(user)) => format!("{name} of {user}"),
                    _ => name.to_owned(),
                };
                match clustered::remove(&cluster, id) {
                    Ok(()) => print(&format!("{name}\n"))?,
                    Err(failure) => refused.push(tell_and_go_on(&name, &failure)),
                }
            }
        }
        return end(&refused);
    }
    if whose == Whose::All {
        return Err(Failure::Usage(
            "wrong usage: --all-users is for operators of a cluster, and there is none here".into(),
        ));
    }
    let complain = |error| eprintln!("ckptd: warning: failed to {error}");
    let mut refused = Vec::new();
    for job in context.state.jobs(complain)? {
        let summary = match JobSummary::of(&job) {
            Ok(summary) => summary,
            Err(error) => {
                complain(error);
                continue;
            }
        };
        let is_meant = |end: &End| is_by_itself(end.status) && end.at_ms <= before;
        if summary.state == "ended" && summary.end.as_ref().is_some_and(is_meant) {
            match remove(&job) {
                Ok(()) => print(&format!("{}\n", job.name()))?,
                Err(failure) => refused.push(tell_and_go_on(job.name(), &failure)),
            }
        }
    }
    end(&refused)
}

/// Whether a job has come to its end by itself. One that a signal has ended, such as for its memory, may be restarted.
fn is_by_itself(status: Option<ExitKind>) -> bool {
    matches!(status, Some(ExitKind::Exited(_)))
}

/// The others are forgotten all the same.
fn tell_and_go_on(name: &str, failure: &Failure) -> String {
    eprintln!("ckptd: warning: {failure}");
    name.to_owned()
}

fn end(refused: &[String]) -> Result<(), Failure> {
    match refused {
        [] => Ok(()),
        all => Err(Failure::of("remove", format!("{} stay", all.join(", ")))),
    }
}

/// Forgets a job of this machine.
fn remove(job: &JobFolder) -> Result<(), Failure> {
    let name = job.name();
    let what = format!("remove {name}");
    let _lock = match job.lock() {
        // Named twice.
        Err(JobError::Io { .. }) if !job.path().exists() => return Ok(()),
        Err(JobError::Running { .. }) => {
            return Err(Failure::of(what, format!("it is running; 'ckptd stop {name}' ends it")));
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
    Ok(())
}
