//! Makes room for large jobs where the machine's limits can be raised for the time of a run, else tells how far they reach.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::PARTS;
use crate::bench::subject::failure;
use crate::job::Failure;

/// Mappings of one process.
const MAPPINGS: &str = "/proc/sys/vm/max_map_count";
/// Descriptors and mappings that a process has beside those that are counted.
const SPARE: u64 = 1000;
/// Of what memory is free, the job gets one part of so many.
const MEMORY_PART: u64 = 2;

/// The largest job that there is room for. Dropping it gives back what was changed.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) most: u64,
    /// Why it is no larger.
    pub(super) why: String,
    mappings: Option<u64>,
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(before) = self.mappings {
            let _ = fs::write(MAPPINGS, before.to_string());
        }
    }
}

/// Makes room for a job with so much of something.
pub(super) fn make(axis: &str, wanted: u64) -> Result<Room, Failure> {
    match axis {
        // The agent has a copy of each description: of a connection both ends.
        "descriptors" => descriptors(wanted, 1),
        "connections" => descriptors(wanted, 2),
        "mappings" => mappings(wanted),
        "memory" => memory(wanted),
        _ => Ok(Room { most: wanted, why: String::new(), mappings: None }),
    }
}

/// The limit of this process is what it starts inherits.
fn descriptors(wanted: u64, each: u64) -> Result<Room, Failure> {
    let needed = wanted * each + SPARE;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failure)?;
    let limit = narrow(needed)?;
    let raised = setrlimit(Resource::RLIMIT_NOFILE, soft.max(limit), hard.max(limit));
    let most = match raised {
        Ok(()) => wanted,
        Err(_) => wanted.min(round(wide(hard).saturating_sub(SPARE) / each)),
    };
    let why = format!("a process may have {hard} descriptors (RLIMIT_NOFILE)");
    Ok(Room { most, why, mappings: None })
}

/// Limits have 32 bits on machines of 32 bits.
fn wide(limit: impl Into<u64>) -> u64 {
    limit.into()
}

fn narrow<T: TryFrom<u64>>(limit: u64) -> Result<T, Failure>
where
    T::Error: std::fmt::Display,
{
    T::try_from(limit).map_err(failure)
}

fn mappings(wanted: u64) -> Result<Room, Failure> {
    let text = fs::read_to_string(MAPPINGS).map_err(failure)?;
    let before: u64 = text.trim().parse().map_err(failure)?;
    let needed = wanted + SPARE;
    if before >= needed {
        return Ok(Room { most: wanted, why: String::new(), mappings: None });
    }
    match fs::write(MAPPINGS, needed.to_string()) {
        Ok(()) => Ok(Room { most: wanted, why: String::new(), mappings: Some(before) }),
        Err(error) => Ok(Room {
            most: wanted.min(round(before.saturating_sub(SPARE))),
            why: format!("{MAPPINGS} is {before}: {error}"),
            mappings: None,
        }),
    }
}

fn memory(wanted: u64) -> Result<Room, Failure> {
    let text = fs::read_to_string("/proc/meminfo").map_err(failure)?;
    let available = text.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    let available = available.unwrap_or(0) / 1024;
    let why = format!("{available} MiB of memory are free");
    Ok(Room { most: wanted.min(round(available / MEMORY_PART)), why, mappings: None })
}

/// So that all parts of it are whole.
fn round(number: u64) -> u64 {
    number / PARTS[0] * PARTS[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_memory_than_there_is() -> Result<(), Failure> {
        let room = make("memory", u64::MAX)?;
        assert!(room.most > 0 && room.most < u64::MAX && room.most % 8 == 0, "{room:?}");
        assert_eq!(make("memory", 8)?.most, 8);
        assert_eq!(make("threads", 7)?.most, 7);
        Ok(())
    }
}
