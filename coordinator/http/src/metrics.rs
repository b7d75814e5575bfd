//! Metrics for Prometheus, in the text form of OpenMetrics.
//!
//! What is counted is counted from the coordinator's start, as is usual: Prometheus's own functions over time know of starts.
//! (A log that was made shorter does not tell all that had happened before.) The rest is as the coordinator lists it at the
//! moment.

use crate::history::Fact;
use crate::view::{JOB_STATES, Listings, copies_waiting, items};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::AtomicU64;

/// States that a machine can be in; each has its number, 0 too.
const NODE_STATES: [&str; 6] = ["alive", "unheard", "draining", "drained", "leaving", "gone"];

/// What somebody may have to look after; each has its number, 0 too.
const ATTENTION: [&str; 5] = ["disk", "certificate", "drain", "clock", "version"];

/// What room members have: the metric, what it tells, and its key in the listing of nodes.
const ROOM: [(&str, &str, &str); 3] = [
    ("node_disk_free", "Free space on the disk of a member's agent", "disk_free"),
    ("node_disk_size", "Size of that disk", "disk_size"),
    ("node_memory_available", "Memory that a member could give to programs", "available_memory"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct What {
    what: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Node {
    node: String,
}

type Sizes = Family<Node, Gauge>;
type Ratio = Gauge<f64, AtomicU64>;

/// See the module.
pub struct Metrics {
    registry: Registry,
    nodes: Family<State, Gauge>,
    slots: Family<Node, Gauge>,
    load: Family<Node, Ratio>,
    battery: Family<Node, Ratio>,
    /// Of the disks and of the memory of members.
    room: [Sizes; 3],
    jobs: Family<State, Gauge>,
    attention: Family<What, Gauge>,
    waiting: Gauge,
    // A family, since it may not be known.
    free: Family<Vec<(String, String)>, Gauge>,
    pause: Histogram,
    seconds: Histogram,
    bytes: Histogram,
    stored: Histogram,
    abandoned: Counter,
    losses: Counter,
    rollbacks: Family<Reason, Histogram, fn() -> Histogram>,
    moves: Counter,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// From a millisecond to a minute.
fn seconds() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ])
}

/// From 64 KiB to 1 TiB.
fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(65_536.0, 4.0, 13))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = Self {
            registry: Registry::with_prefix("ckptd"),
            nodes: Family::default(),
            slots: Family::default(),
            load: Family::default(),
            battery: Family::default(),
            room: <[Sizes; 3]>::default(),
            jobs: Family::default(),
            attention: Family::default(),
            waiting: Gauge::default(),
            free: Family::default(),
            pause: seconds(),
            seconds: seconds(),
            bytes: sizes(),
            stored: sizes(),
            abandoned: Counter::default(),
            losses: Counter::default(),
            rollbacks: Family::new_with_constructor(seconds),
            moves: Counter::default(),
        };
        all.register();
        all
    }
}

impl Metrics {
    fn register(&mut self) {
        let to = &mut self.registry;
        to.register("nodes", "Members, by their state", self.nodes.clone());
        to.register("node_slots", "Processes that a member takes", self.slots.clone());
        to.register("node_load", "Load average of a member over a minute", self.load.clone());
        let about = "Charge of a member's battery, 1 full";
        to.register("node_battery_ratio", about, self.battery.clone());
        for ((name, about, _), family) in ROOM.iter().zip(&self.room) {
            to.register_with_unit(*name, *about, Unit::Bytes, family.clone());
        }
        to.register("jobs", "Jobs that are not over, by their state", self.jobs.clone());
        let about = "Things that somebody should look after, as 'ckptd status' tells them";
        to.register("attention", about, self.attention.clone());
        let about = "Copies that the newest checkpoints of running jobs lack";
        to.register("copies_waiting", about, self.waiting.clone());
        let about = "Free space on the disk of the coordinator's folder";
        to.register_with_unit("state_free", about, Unit::Bytes, self.free.clone());
        let about = "For how long jobs stood still for committed checkpoints";
        to.register_with_unit("checkpoint_pause", about, Unit::Seconds, self.pause.clone());
        let about = "From the stop of a job for a checkpoint to its commit";
        to.register_with_unit("checkpoint_duration", about, Unit::Seconds, self.seconds.clone());
        let about = "Memory and files in committed checkpoints";
        to.register_with_unit("checkpoint_size", about, Unit::Bytes, self.bytes.clone());
        let about = "What committed checkpoints added to the store";
        to.register_with_unit("checkpoint_stored", about, Unit::Bytes, self.stored.clone());
        let about = "Checkpoints that were given up";
        to.register("checkpoints_abandoned", about, self.abandoned.clone());
        to.register("node_losses", "Members that were declared gone", self.losses.clone());
        let about = "From the loss, or the stop for a move, until all processes ran again";
        to.register_with_unit("rollback", about, Unit::Seconds, self.rollbacks.clone());
        let about = "Processes that went on on another machine";
        to.register("process_moves", about, self.moves.clone());
    }

    /// Counts something that happened.
    pub fn count(&self, fact: &Fact) {
        match fact {
            Fact::Committed(record) => {
                self.pause.observe(record.pause_us as f64 / 1e6);
                let took = record.committed_at_ms.saturating_sub(record.taken_at_ms);
                self.seconds.observe(took as f64 / 1e3);
                self.bytes.observe(record.summary.bytes as f64);
                self.stored.observe(record.summary.stored_bytes as f64);
            }
            Fact::Abandoned => drop(self.abandoned.inc()),
            Fact::Lost => drop(self.losses.inc()),
            Fact::Rollback(record) => {
                self.moves.inc_by(record.moves.len() as u64);
                let Some(running) = record.running_ms else { return };
                let began = Some(record.lost_at_ms).filter(|at| *at > 0);
                let took = running.saturating_sub(began.unwrap_or(record.declared_ms));
                let reason = Reason { reason: escaped(&record.reason) };
                self.rollbacks.get_or_create(&reason).observe(took as f64 / 1e3);
            }
        }
    }

    /// All of it, with what is listed at the moment, and the free bytes of the coordinator's disk.
    ///
    /// # Errors
    /// Never, as long as strings can be written.
    pub fn text(&mut self, listings: &Listings, free: Option<u64>) -> Result<String, fmt::Error> {
        let states = items(&listings.nodes, usize::MAX).map(|node| &node["state"]);
        let label = |state: &str| State { state: state.to_owned() };
        tell_kinds(&self.nodes, &NODE_STATES, states, label);
        let states = items(&listings.jobs, usize::MAX).map(|job| &job["state"]);
        tell_kinds(&self.jobs, &JOB_STATES, states, label);
        let found = items(&listings.around["attention"], usize::MAX).map(|one| &one["what"]);
        let label = |what: &str| What { what: what.to_owned() };
        tell_kinds(&self.attention, &ATTENTION, found, label);
        self.slots.clear();
        self.load.clear();
        self.battery.clear();
        self.room.iter().for_each(Family::clear);
        for node in items(&listings.nodes, usize::MAX) {
            let Some(name) = node["name"].as_str() else { continue };
            let label = Node { node: escaped(name) };
            if let Some(slots) = node["slots"].as_i64() {
                self.slots.get_or_create(&label).set(slots);
            }
            if let Some(load) = node["load"].as_f64() {
                self.load.get_or_create(&label).set(load);
            }
            if let Some(percent) = node["battery"].as_f64() {
                self.battery.get_or_create(&label).set(percent / 100.0);
            }
            for ((_, _, key), family) in ROOM.iter().zip(&self.room) {
                // What is not known is 0 there; what was known of one that is gone, is over.
                let bytes = node[*key].as_i64().filter(|bytes| *bytes > 0);
                if let Some(bytes) = bytes.filter(|_| node["state"] != "gone") {
                    family.get_or_create(&label).set(bytes);
                }
            }
        }
        let waiting: u64 = items(&listings.jobs, usize::MAX).map(copies_waiting).sum();
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.free.clear();
        if let Some(free) = free {
            self.free.get_or_create(&Vec::new()).set(i64::try_from(free).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// The same for clients that ask for no OpenMetrics, in the text format of Prometheus: counters are described under the names
/// that they have, units are not.
pub fn older(text: &str) -> String {
    let mut counters = Vec::new();
    for line in text.lines() {
        let family = line.strip_prefix("# TYPE ").and_then(|line| line.strip_suffix(" counter"));
        counters.extend(family);
    }
    let mut out = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(kind), Some(name), Some(rest)) if counters.contains(&name) => {
                out.push_str(&format!("# {kind} {name}_total {rest}"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// The value of a label: the library writes it as it is.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// How many there are of each of these kinds, such as states. Others are not told: those of states that are over are not
/// listed, but the newest job is.
fn tell_kinds<'a, L: Clone + Hash + Eq>(
    family: &Family<L, Gauge>,
    known: &[&str],
    found: impl Iterator<Item = &'a Value>,
    label: impl Fn(&str) -> L,
) {
    family.clear();
    for kind in known {
        family.get_or_create(&label(kind)).set(0);
    }
    for kind in found.filter_map(Value::as_str).filter(|kind| known.contains(kind)) {
        family.get_or_create(&label(kind)).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::cluster::entry::RollbackRecord;
    use serde_json::json;

    fn listings() -> Listings {
        Listings {
            nodes: json!([{"name": "a\"\n", "state": "alive", "slots": 2, "load": 0.5, "battery": 80,
                "disk_free": 1024, "disk_size": 4096, "available_memory": 2048},
                {"name": "b", "state": "gone", "slots": 4, "load": null, "battery": null}]),
            jobs: json!([{"state": "running", "settings": {"copies": 2},
                "checkpoints": [{"images": [{"holders": ["a"]}]}]},
                {"state": "ended", "settings": {"copies": 9}, "checkpoints": [{"images": [{"holders": []}]}]}]),
            around: json!({"attention": [{"what": "disk"}, {"what": "disk"}, {"what": "odd"}], "drained": []}),
            at: 0,
            error: None,
        }
    }

    /// The names of metrics in a text.
    fn names(text: &str) -> Vec<&str> {
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let starts = text.match_indices("ckptd_").map(|(start, _)| &text[start..]);
        starts.filter_map(|rest| rest.split(|letter| !is_part(letter)).next()).collect()
    }

    #[test]
    fn what_is_listed_and_what_happened_is_told() {
        let mut metrics = Metrics::default();
        let rollback = RollbackRecord {
            reason: "lost".into(),
            lost_at_ms: 1000,
            running_ms: Some(3400),
            ..RollbackRecord::default()
        };
        metrics.count(&Fact::Rollback(rollback));
        metrics.count(&Fact::Lost);
        let text = metrics.text(&listings(), Some(4096)).unwrap();
        for line in [
            "ckptd_nodes{state=\"alive\"} 1",
            "ckptd_nodes{state=\"leaving\"} 0",
            "ckptd_jobs{state=\"running\"} 1",
            "ckptd_node_slots{node=\"b\"} 4",
            "ckptd_node_load{node=\"a\\\"\\n\"} 0.5",
            "ckptd_node_battery_ratio{node=\"a\\\"\\n\"} 0.8",
            "ckptd_node_disk_free_bytes{node=\"a\\\"\\n\"} 1024",
            "ckptd_node_disk_size_bytes{node=\"a\\\"\\n\"} 4096",
            "ckptd_attention{what=\"disk\"} 2",
            "ckptd_attention{what=\"clock\"} 0",
            "ckptd_copies_waiting 1",
            "ckptd_state_free_bytes{} 4096",
            "ckptd_node_losses_total 1",
            "ckptd_rollback_seconds_sum{reason=\"lost\"} 2.4",
            "ckptd_checkpoint_pause_seconds_count 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
        let older = older(&text);
        for line in [
            "# TYPE ckptd_node_losses_total counter",
            "# HELP ckptd_node_losses_total Members that were declared gone.",
            "# TYPE ckptd_checkpoint_pause_seconds histogram",
            "ckptd_node_losses_total 1",
        ] {
            assert!(older.lines().any(|found| found == line), "{line} is not in:\n{older}");
        }
        assert!(!older.contains("# UNIT") && !older.contains("EOF"), "{older}");
        for (file, text) in [
            ("packaging/grafana/ckptd.json", include_str!("../../../packaging/grafana/ckptd.json")),
            (
                "packaging/prometheus/alerts.yml",
                include_str!("../../../packaging/prometheus/alerts.yml"),
            ),
            ("docs/src/guides/watch.md", include_str!("../../../docs/src/guides/watch.md")),
        ] {
            let asked = names(text);
            assert!(!asked.is_empty(), "{file}");
            // Histograms are described by their names without what a sample has behind it.
            let is_told = |name: &&str| {
                let mut lines = older.lines().filter(|line| !line.starts_with("# HELP"));
                lines.any(|line| {
                    let (described, sample) = (line.strip_prefix("# TYPE "), line);
                    let line = described.unwrap_or(sample);
                    line.strip_prefix(*name).is_some_and(|rest| rest.starts_with([' ', '{']))
                })
            };
            let unknown: Vec<&str> = asked.into_iter().filter(|name| !is_told(name)).collect();
            assert!(unknown.is_empty(), "{file} has metrics that there are not: {unknown:?}");
        }
        // A machine that was turned out is told of no more.
        let empty = Listings::default();
        let text = metrics.text(&empty, None).unwrap();
        assert!(!text.contains("node=") && !text.contains("free_bytes{"), "{text}");
    }
}
