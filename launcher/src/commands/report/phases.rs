//! What a recovery consists of, from the last word of a node to all processes running again.

use crate::cluster::listing::number;
use serde_json::Value;

/// A part of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// What it is called.
    pub name: &'static str,
    /// What happens in it.
    pub about: &'static str,
    /// The key of its end in a rollback's record.
    end: &'static str,
}

/// In their order. The first begins with the last word of the node, or of a move with the stop of the job.
pub const PHASES: [Phase; 5] = [
    Phase { name: "noticed", about: "until the node was declared gone", end: "declared_ms" },
    Phase { name: "planned", about: "old processes ended, new places chosen", end: "planned_ms" },
    Phase { name: "fetched", about: "images brought to where they are needed", end: "images_ms" },
    Phase {
        name: "restored",
        about: "processes, memory, files and connections made",
        end: "restored_ms",
    },
    Phase { name: "running", about: "all let go together", end: "running_ms" },
];

/// Of a rollback: which phase, from when to when, in milliseconds since its beginning.
pub fn of(rollback: &Value) -> Vec<(Phase, u64, u64)> {
    let Some(began) = began(rollback) else { return Vec::new() };
    let mut at = 0;
    let mut spans = Vec::new();
    for phase in PHASES {
        // What comes later has no time of its own where one is missing: it is under way.
        let Some(end) = number(rollback, phase.end) else { break };
        // Clocks of several machines are in these records.
        let end = end.saturating_sub(began).max(at);
        spans.push((phase, at, end));
        at = end;
    }
    spans
}

/// When it began, in milliseconds since 1970.
pub fn began(rollback: &Value) -> Option<u64> {
    let lost = number(rollback, "lost_at_ms").filter(|at| *at > 0);
    lost.or_else(|| number(rollback, "declared_ms"))
}

/// When all ran again.
pub fn ended(rollback: &Value) -> Option<u64> {
    number(rollback, "running_ms")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn phases_follow_each_other() {
        let rollback = json!({"lost_at_ms": 1000, "declared_ms": 3000, "planned_ms": 2900,
            "images_ms": 3400, "restored_ms": null, "running_ms": 5000});
        let spans: Vec<_> =
            of(&rollback).iter().map(|(p, from, to)| (p.name, *from, *to)).collect();
        // A clock that is behind makes no phase negative; what has not come to its end is not there.
        assert_eq!(spans, [("noticed", 0, 2000), ("planned", 2000, 2000), ("fetched", 2000, 2400)]);
        assert!(of(&json!({})).is_empty());
    }
}
