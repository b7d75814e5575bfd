//! What changes: load, memory, battery.

use protocol::cluster::agent::Vitals;

use super::gauge::Reading;

/// How the machine is now. What cannot be read is 0 or none.
#[must_use]
pub fn vitals(reading: Reading) -> Vitals {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Vitals {
        load: load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default(),
        available_memory: meminfo("MemAvailable:").unwrap_or_default(),
        battery: battery(),
        speed: reading.speed,
        capacity: Some(reading.cores),
        achieved: reading.achieved,
    }
}

/// A line of /proc/meminfo, in bytes (proc(5)).
pub(super) fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Charge of the first battery, percent (Documentation/ABI/testing/sysfs-class-power).
fn battery() -> Option<u8> {
    let supplies = std::fs::read_dir("/sys/class/power_supply").ok()?;
    supplies.flatten().find_map(|supply| {
        let read = |name: &str| std::fs::read_to_string(supply.path().join(name)).ok();
        let is_battery = read("type")?.trim() == "Battery" && read("scope").is_none();
        is_battery.then(|| read("capacity")?.trim().parse().ok()).flatten()
    })
}
