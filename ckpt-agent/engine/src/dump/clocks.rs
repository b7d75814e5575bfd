//! The clocks as the job sees them: this machine's, shifted by its time namespace
//! (time_namespaces(7)).

use super::super::error::{EngineError, Result};
use super::super::graph::Clocks;
use super::super::proc::read_text;

/// Nanoseconds per second.
const SECOND: i64 = 1_000_000_000;

/// Offsets of CLOCK_MONOTONIC and CLOCK_BOOTTIME in a process's time namespace, ns. Zero where the
/// kernel has no time namespaces.
///
/// # Errors
/// A file that is not understood.
pub fn offsets(pid: i32) -> Result<(i64, i64)> {
    let path = format!("/proc/{pid}/timens_offsets");
    let Some(text) = read_text(&path)? else { return Ok((0, 0)) };
    let (mut monotonic, mut boottime) = (0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [clock, seconds, nanoseconds] = words[..] else {
            return Err(EngineError::odd(path, line));
        };
        let number = |word: &str| word.parse::<i64>().map_err(|_| EngineError::odd(&path, line));
        let offset = number(seconds)?.saturating_mul(SECOND).saturating_add(number(nanoseconds)?);
        match clock {
            "monotonic" => monotonic = offset,
            "boottime" => boottime = offset,
            _ => {}
        }
    }
    Ok((monotonic, boottime))
}

/// A clock of this process now, ns.
///
/// # Errors
/// Failed clock_gettime(2).
pub fn now(clock: nix::time::ClockId) -> Result<i64> {
    let time = nix::time::clock_gettime(clock)
        .map_err(|errno| EngineError::system("clock_gettime", clock.to_string(), errno))?;
    #[allow(clippy::useless_conversion, reason = "32 bits on some architectures")]
    Ok(i64::from(time.tv_sec()) * SECOND + i64::from(time.tv_nsec()))
}

/// All clocks as a process sees them now.
///
/// # Errors
/// As [`offsets`].
pub fn of_process(pid: i32) -> Result<Clocks> {
    use nix::time::ClockId;
    let (monotonic, boottime) = offsets(pid)?;
    let (own_monotonic, own_boottime) = offsets(std::process::id() as i32)?;
    Ok(Clocks {
        monotonic_ns: now(ClockId::CLOCK_MONOTONIC)? - own_monotonic + monotonic,
        boottime_ns: now(ClockId::CLOCK_BOOTTIME)? - own_boottime + boottime,
        realtime_ns: now(ClockId::CLOCK_REALTIME)?,
    })
}
