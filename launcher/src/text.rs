//! How sizes, times and ends are shown.

pub use protocol::clock::wall_ms as now_ms;

use protocol::agent::{CommitRecord, ExitKind, Step};
use std::time::Duration;

/// A number of bytes.
#[must_use]
pub fn size(bytes: u64) -> String {
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

/// A duration given in microseconds.
#[must_use]
pub fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1000),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// A duration in whole milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What is said of a restart that was rehearsed.
#[must_use]
pub fn restorable(checkpoint: u64, processes: u32, took_ms: u64) -> String {
    let processes = count(processes.into(), "process");
    let seconds = took_ms as f64 / 1e3;
    format!("checkpoint {checkpoint} can be restored: {processes}, {seconds:.1} s")
}

/// How long ago something was.
#[must_use]
pub fn age(from_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(from_ms) / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The end of the year 9999: later ones have no such form.
const LAST: u64 = 253_402_300_799_999;

/// A moment, in milliseconds since 1970, as 2026-11-28T15:42:52Z.
#[must_use]
pub fn utc(at_ms: u64) -> String {
    match at_ms {
        ..=LAST => {
            let at = std::time::UNIX_EPOCH + Duration::from_millis(at_ms);
            humantime::format_rfc3339_seconds(at).to_string()
        }
        _ => "?".to_owned(),
    }
}

/// How a job ended.
#[must_use]
pub fn end(status: Option<ExitKind>) -> String {
    match status {
        None => "lost".to_owned(),
        Some(ExitKind::Exited(status)) => format!("ended with status {status}"),
        Some(ExitKind::Signalled(signal)) => format!("ended by signal {signal}"),
    }
}

/// The plural of a counted thing whose plural is formed by an s, or es after s.
#[must_use]
pub fn count(number: u64, thing: &str) -> String {
    let ending = match (number, thing.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {thing}{ending}")
}

/// What is said of a committed checkpoint.
#[must_use]
pub fn committed(record: &CommitRecord) -> String {
    let summary = &record.summary;
    let degraded = if record.degraded {
        let noun = if record.copies == 1 { "copy" } else { "copies" };
        format!(", degraded: {} {noun} only", record.copies)
    } else {
        String::new()
    };
    format!(
        "checkpoint {} committed: {}, {} ({} stored), pause {}{degraded}",
        record.checkpoint,
        count(summary.processes.into(), "process"),
        size(summary.bytes),
        size(summary.stored_bytes),
        micros(record.pause_us),
    )
}

/// What the steps of a checkpoint took: "freeze 3 ms, drain 200 us", shown only in the job's log.
pub fn steps(steps: &[(Step, u64)]) -> String {
    let each = steps.iter().map(|(step, nanos)| format!("{step} {}", micros(nanos / 1000)));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::agent::{ImageSummary, InstanceId};

    #[test]
    fn sizes_and_times() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1024), "1.0 KiB");
        assert_eq!(size(61 << 20), "61 MiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16 EiB");
        assert_eq!(micros(950), "950 us");
        assert_eq!(micros(4_250), "4.2 ms");
        assert_eq!(micros(12_300), "12 ms");
        assert_eq!(micros(1_250_000), "1.2 s");
        let took = [(Step::Freeze, 3_100_000), (Step::Write, 2_000_000_000)];
        assert_eq!(steps(&took), "freeze 3.1 ms, write 2.0 s");
        assert_eq!(age(1_000, 31_500), "30 s");
        assert_eq!(age(5_000, 1_000), "0 s");
        assert_eq!(age(0, 7_200_000), "2 h");
    }

    #[test]
    fn the_line_about_a_commit() {
        let mut record = CommitRecord {
            format: CommitRecord::FORMAT,
            job: "mpirun-1".into(),
            checkpoint: 3,
            restored_from: None,
            taken_at_ms: 0,
            committed_at_ms: 0,
            pause_us: 12_000,
            log_length: 0,
            copies: 1,
            degraded: false,
            suspended: false,
            summary: ImageSummary {
                processes: 7,
                bytes: 61 << 20,
                stored_bytes: 22 << 20,
                files: 0,
                connections: 0,
            },
            agents: vec![InstanceId::EMBEDDED].into(),
        };
        assert_eq!(
            committed(&record),
            "checkpoint 3 committed: 7 processes, 61 MiB (22 MiB stored), pause 12 ms"
        );
        record.degraded = true;
        record.summary.processes = 1;
        assert_eq!(
            committed(&record),
            "checkpoint 3 committed: 1 process, 61 MiB (22 MiB stored), pause 12 ms, degraded: 1 copy only"
        );
    }
}
