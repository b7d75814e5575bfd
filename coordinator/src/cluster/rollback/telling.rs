//! What the user is told of an epoch that runs.

use super::plan;
use crate::cluster::entry::{Cause, RollbackRecord};
use crate::cluster::event::Now;
use crate::cluster::job::ledger::Ledger;
use crate::cluster::text;
use protocol::cluster::NodeName;

/// From where a job goes on, why, and where its processes are now.
pub(super) fn goes_on(ledger: &Ledger, now: Now, record: &RollbackRecord) -> String {
    let name = &ledger.name;
    let from = match record.checkpoint {
        Some(number) if record.is_move() => {
            format!("job {name} goes on from checkpoint {number}, where it stood")
        }
        Some(number) => {
            let taken = ledger.history.record(number).map(|record| record.taken_at_ms);
            let age = taken
                .map_or(String::new(), |taken| format!(", {} old", text::age(taken, now.unix_ms)));
            format!("job {name} goes on from checkpoint {number}{age}")
        }
        None => format!("job {name} begins anew: it had no committed checkpoint"),
    };
    let why = match (record.reason.as_str(), &record.node, &ledger.cause) {
        ("lost", Some(node), _) => format!(": {node} is gone"),
        ("leave" | "drain" | "join" | "speed", Some(_), _) => format!(": {}", moved_for(record)),
        (_, _, Cause::Broken { node, reason }) => format!(": {node}: {reason}"),
        (_, _, Cause::Address { node, address }) => {
            format!(": {node} has another address, {address}")
        }
        _ => String::new(),
    };
    let moved = plan::describe(&record.moves);
    let moved = if moved.is_empty() { moved } else { format!("; {moved}") };
    let without = text::daemons(&ledger.departed);
    let without = if without.is_empty() { without } else { format!("; without {without}") };
    format!("{from}{why}{moved}{without}")
}

/// Why a job was moved, and what is expected of it.
pub(in crate::cluster) fn moved_for(record: &RollbackRecord) -> String {
    let nodes: Vec<&str> = if record.nodes.is_empty() {
        record.node.iter().map(NodeName::as_str).collect()
    } else {
        record.nodes.iter().map(NodeName::as_str).collect()
    };
    let names = nodes.join(", ");
    let one = nodes.len() == 1;
    let Some(expected) = &record.expected else {
        return match record.reason.as_str() {
            "drain" => format!("{names} {} drained", if one { "is" } else { "are" }),
            _ => format!("{names} {}", if one { "leaves" } else { "leave" }),
        };
    };
    let what = match expected.pace_permille {
        Some(pace) if one => format!("is {:.2} times as fast as it was", f64::from(pace) / 1e3),
        Some(_) => "have become slower or faster".to_owned(),
        None => format!("{} joined", if one { "has" } else { "have" }),
    };
    format!(
        "{names} {what}, {:.2} times as fast expected",
        f64::from(expected.faster_permille) / 1e3
    )
}
