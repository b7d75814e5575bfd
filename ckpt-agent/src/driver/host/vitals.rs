//! What changes: load, memory, battery.

use ckpt_node::Charge;
use protocol::clock::wall_ms;
use protocol::cluster::agent::Vitals;

use super::gauge::Reading;

/// How the machine is now. What cannot be read is 0 or none.
#[must_use]
pub fn vitals(reading: Reading, charge: Option<Charge>) -> Vitals {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Vitals {
        load: load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default(),
        available_memory: meminfo("MemAvailable:").unwrap_or_default(),
        battery: charge.map(|charge| charge.percent),
        charging: charge.map(|charge| !charge.drains),
        speed: reading.speed,
        capacity: Some(reading.cores),
        achieved: reading.achieved,
        wall_ms: Some(wall_ms()),
        room: reading.room,
    }
}

/// A line of /proc/meminfo, in bytes (proc(5)).
pub(super) fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}
