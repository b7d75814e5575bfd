//! How far the restart of a cluster's job is.

use super::link::Link;
use crate::cluster::listing::{list, number, word};
use crate::progress::Watcher;
use protocol::cluster::client::{Answer, Ask};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a rollback does until a moment is known, in this order.
const PHASES: [(&str, &str); 5] = [
    ("planned_ms", "what is left of the job is ended"),
    ("images_ms", "images are fetched"),
    ("rewired_ms", "connections are planned"),
    ("restored_ms", "processes are restored"),
    ("running_ms", "processes are let go"),
];

/// Tells of a job until that is dropped.
pub fn watch(socket: PathBuf, job: String) -> Watcher {
    Watcher::start(move || told(&status(&socket, &job)?))
}

fn status(socket: &Path, job: &str) -> Option<Value> {
    let ask = Ask::Status { job: Some(job.to_owned()) };
    match Link::open(socket, &ask).ok()?.next().ok()? {
        Answer::Listing { value } => Some(value),
        _ => None,
    }
}

fn told(job: &Value) -> Option<String> {
    let name = word(job, "name");
    let rollback = list(job, "rollbacks").last()?;
    let (_, phase) = PHASES.iter().find(|(until, _)| number(rollback, until).is_none())?;
    Some(format!("restart {name}: {phase}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::cluster::entry::RollbackRecord;
    use serde_json::json;

    #[test]
    fn the_phase_is_that_whose_end_is_not_known() {
        let of = |record: RollbackRecord| told(&json!({"name": "fold", "rollbacks": [record]}));
        let record = RollbackRecord { planned_ms: Some(5), ..RollbackRecord::default() };
        assert_eq!(of(record.clone()).as_deref(), Some("restart fold: images are fetched"));
        let record = RollbackRecord { images_ms: Some(6), rewired_ms: Some(6), ..record };
        assert_eq!(of(record.clone()).as_deref(), Some("restart fold: processes are restored"));
        let record = RollbackRecord { restored_ms: Some(7), running_ms: Some(8), ..record };
        assert_eq!(of(record), None);
        assert_eq!(told(&json!({"name": "fold", "rollbacks": []})), None);
    }
}
