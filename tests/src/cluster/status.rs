//! What `ckptd status --json` tells of a job on a cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::ckptd::Ckptd;
use crate::job::Failure;

/// How a job is.
pub struct Status {
    value: Value,
}

/// Where a process is.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The machine.
    pub node: String,
    /// The logical node that it believes to be on.
    pub logical_node: String,
    /// Its program's name.
    pub process: String,
    /// Its number on its logical node.
    pub pid: i64,
    /// What it has to do, in what an average one has, where that was learned.
    pub work: Option<f64>,
}

/// A rollback: its phases, in milliseconds since 1970 UTC.
#[derive(Clone, Debug, Deserialize)]
pub struct Rollback {
    /// When the node was last heard.
    pub lost_at_ms: u64,
    /// When it was declared gone.
    pub declared_ms: u64,
    /// When it was decided who goes where.
    pub planned_ms: Option<u64>,
    /// When every image was where it was needed.
    pub images_ms: Option<u64>,
    /// When the orders to make connections had been given.
    pub rewired_ms: Option<u64>,
    /// When everything was complete.
    pub restored_ms: Option<u64>,
    /// When all ran.
    pub running_ms: Option<u64>,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// What was expected of it, of a move to newcomers.
    #[serde(default)]
    pub expected: Option<Expected>,
}

/// What is expected of a move to newcomers.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Expected {
    /// How much faster the job is to be, in thousandths: 1000 is as before.
    pub faster_permille: u32,
}

impl Status {
    /// Asks on the coordinator's machine.
    ///
    /// # Errors
    /// When the command fails.
    pub fn of(ckptd: &Ckptd, job: &str) -> Result<Status, Failure> {
        let text = ckptd.coordinator_node().must_run(&["ckptd", "status", job, "--json"])?;
        let value = serde_json::from_str(&text);
        let value = value.map_err(|e| Failure(format!("status --json is no JSON: {e}\n{text}")))?;
        Ok(Status { value })
    }

    /// `running`, `ended` and the like.
    pub fn state(&self) -> &str {
        self.value["state"].as_str().unwrap_or("?")
    }

    /// Number of the newest committed checkpoint.
    pub fn newest_checkpoint(&self) -> Option<u64> {
        list(&self.value, "checkpoints").iter().filter_map(|c| c["checkpoint"].as_u64()).max()
    }

    /// How long the job stood still for its checkpoints, ms, oldest first.
    pub fn pauses(&self) -> Vec<f64> {
        let pauses = list(&self.value, "checkpoints").iter();
        pauses.filter_map(|c| c["pause_us"].as_f64()).map(|micros| micros / 1e3).collect()
    }

    /// Where each process is.
    pub fn places(&self) -> Vec<Place> {
        let word = |value: &Value, key: &str| value[key].as_str().unwrap_or("?").to_owned();
        list(&self.value, "processes")
            .iter()
            .map(|process| Place {
                node: word(process, "node"),
                logical_node: word(process, "home"),
                process: word(process, "name"),
                pid: process["pid"].as_i64().unwrap_or(0),
                work: process["work"].as_f64(),
            })
            .collect()
    }

    /// The machines on which processes of a program are that believe to be on `logical_node`.
    pub fn machines_of(&self, logical_node: &str, process: &str) -> BTreeSet<String> {
        let places = self.places().into_iter();
        let wanted = places.filter(|p| p.logical_node == logical_node && p.process == process);
        wanted.map(|place| place.node).collect()
    }

    /// How many processes of a program are on each machine.
    pub fn spread_of(&self, process: &str) -> BTreeMap<String, usize> {
        let mut spread = BTreeMap::new();
        for place in self.places().into_iter().filter(|place| place.process == process) {
            *spread.entry(place.node).or_default() += 1;
        }
        spread
    }

    /// The machines that hold the images of the newest checkpoint, image by image.
    pub fn holders(&self) -> Vec<BTreeSet<String>> {
        let newest = list(&self.value, "checkpoints").last();
        let images = newest.map_or(&[][..], |newest| list(newest, "images"));
        let names = |image: &Value| {
            list(image, "holders").iter().filter_map(|n| n.as_str().map(str::to_owned)).collect()
        };
        images.iter().map(names).collect()
    }

    /// All rollbacks and moves, oldest first.
    ///
    /// # Errors
    /// When they are told in another form.
    pub fn rollbacks(&self) -> Result<Vec<Rollback>, Failure> {
        let told = self.value.get("rollbacks").cloned().unwrap_or(Value::Array(Vec::new()));
        serde_json::from_value(told).map_err(|e| Failure(format!("odd rollbacks: {e}")))
    }

    /// How many rollbacks have got the job to run again.
    pub fn completed_rollbacks(&self) -> usize {
        let rollbacks = list(&self.value, "rollbacks").iter();
        rollbacks.filter(|rollback| rollback["running_ms"].is_u64()).count()
    }

    /// For a failure's text.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(&self.value).unwrap_or_default()
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_and_rollbacks_are_read() {
        let value = json!({
            "state": "running",
            "checkpoints": [{"checkpoint": 3, "pause_us": 1500}, {"checkpoint": 4}],
            "processes": [{"node": "node1", "home": "node3", "name": "nqueens", "pid": 7,
                           "why": "room"}],
            "rollbacks": [{"lost_at_ms": 1, "declared_ms": 2, "planned_ms": null}],
        });
        let status = Status { value };
        assert_eq!((status.state(), status.newest_checkpoint()), ("running", Some(4)));
        assert_eq!(status.pauses(), [1.5]);
        let machines = status.machines_of("node3", "nqueens");
        assert_eq!(machines.into_iter().collect::<Vec<_>>(), ["node1"]);
        assert_eq!(status.rollbacks().map(|r| r.len()).unwrap_or(0), 1);
        assert_eq!(status.completed_rollbacks(), 0);
    }
}
