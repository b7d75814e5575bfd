//! How sizes, times and counts are said in lines for the user.

use super::entry::DepartedDaemon;
use protocol::agent::{CommitRecord, ExitKind};
use protocol::cluster::NodeName;
use std::collections::BTreeSet;

/// A number of bytes.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 9.95 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.0} {}", UNITS[unit])
    }
}

/// That output was lost.
pub(super) fn lost_output(bytes: u64) -> String {
    format!(
        "up to {bytes} bytes of output are not in this log: they were lost with the coordinator's machine"
    )
}

/// That output which a checkpoint has is not in the log: it was cut off before the job went on from that checkpoint.
pub(super) fn output_cut_off(bytes: u64) -> String {
    format!(
        "up to {bytes} bytes of output are not in this log: they were taken back when the job went on from an older \
         checkpoint, or lost with the coordinator's machine"
    )
}

/// How long ago something was.
pub(super) fn age(from_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(from_ms) / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn micros(us: u64) -> String {
    match us {
        0..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1000),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// What is said of a committed checkpoint.
pub(super) fn committed(record: &CommitRecord) -> String {
    let summary = &record.summary;
    let degraded = match (record.degraded, record.copies) {
        (false, _) => String::new(),
        (true, 1) => ", degraded: 1 copy only".to_owned(),
        (true, copies) => format!(", degraded: {copies} copies only"),
    };
    format!(
        "checkpoint {} committed: {} processes, {} ({} stored), pause {}{degraded}",
        record.checkpoint,
        summary.processes,
        size(summary.bytes),
        size(summary.stored_bytes),
        micros(record.pause_us),
    )
}

/// How a process ended, behind "ended".
pub(super) fn ended(status: ExitKind) -> String {
    match status {
        ExitKind::Exited(status) => format!("with status {status}"),
        ExitKind::Signalled(signal) => format!("by signal {signal}"),
    }
}

/// "orted (5) of node3 and sh (2) of node4"
pub(super) fn daemons(daemons: &[DepartedDaemon]) -> String {
    let names: Vec<String> = daemons
        .iter()
        .map(|daemon| format!("{} ({}) of {}", daemon.name, daemon.pid, daemon.node))
        .collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Which machines must be back, one of each group; none, if a group has nobody.
pub(super) fn must_be_back(groups: &BTreeSet<Vec<NodeName>>) -> Option<String> {
    let either = |nodes: &Vec<NodeName>| {
        let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
        (!names.is_empty()).then(|| names.join(" or "))
    };
    let groups: Option<Vec<String>> = groups.iter().map(either).collect();
    groups.map(|groups| format!("{} must be back", groups.join(", and ")))
}
