//! The battery, as the kernel tells of it (Documentation/ABI/testing/sysfs-class-power), and when it is too low to stay.

use std::path::{Path, PathBuf};

/// Names another folder than the kernel's, for tests.
const FOLDER: &str = "CKPTD_POWER_SUPPLY";
/// Where the kernel has its power supplies.
const POWER_SUPPLIES: &str = "/sys/class/power_supply";
/// Looks at a low battery, one each heartbeat, from one announcement of a departure to the next, where the cluster could
/// not do without this node.
const LOOKS_UNTIL_AGAIN: u32 = 60;

/// How a battery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// In percent of what it holds when full.
    pub percent: u8,
    /// Whether the machine lives on it: nothing charges it.
    pub drains: bool,
}

/// The machine's power supplies.
#[derive(Debug, Clone)]
pub struct Battery {
    folder: PathBuf,
}

impl Battery {
    /// This machine's.
    #[must_use]
    pub fn of_machine() -> Self {
        let folder = std::env::var_os(FOLDER).map_or(POWER_SUPPLIES.into(), PathBuf::from);
        Self { folder }
    }

    /// How it is; with several batteries the fullest, since the machine lives on until that one is empty. None without a
    /// battery, or where the kernel's files may not be read, as by apps of some phones.
    #[must_use]
    pub fn charge(&self) -> Option<Charge> {
        let supplies: Vec<PathBuf> =
            std::fs::read_dir(&self.folder).ok()?.flatten().map(|entry| entry.path()).collect();
        let is_battery = |supply: &&PathBuf| {
            // What has a scope is a mouse's or a headset's.
            word(supply, "type").as_deref() == Some("Battery")
                && word(supply, "scope").is_none_or(|scope| scope == "System")
        };
        let batteries: Vec<&PathBuf> = supplies.iter().filter(is_battery).collect();
        let percent = batteries.iter().filter_map(|supply| word(supply, "capacity")?.parse().ok());
        let percent: u8 = percent.max()?;
        let plugged = || {
            supplies.iter().any(|supply| {
                word(supply, "type").is_some_and(|of| of != "Battery")
                    && word(supply, "online").as_deref() == Some("1")
            })
        };
        let statuses: Vec<String> =
            batteries.iter().filter_map(|supply| word(supply, "status")).collect();
        let is = |words: &[&str]| statuses.iter().any(|status| words.contains(&status.as_str()));
        let drains = if is(&["Charging", "Full", "Not charging"]) {
            false
        } else {
            is(&["Discharging"]) || !plugged()
        };
        Some(Charge { percent: percent.min(100), drains })
    }
}

fn word(supply: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(supply.join(name)).ok().map(|text| text.trim().to_owned())
}

/// Decides when a battery is too low to stay.
#[derive(Debug)]
pub struct BatteryGuard {
    leave_below: Option<u8>,
    /// Looks until it may be announced again.
    rest: u32,
}

impl BatteryGuard {
    /// One that leaves when less than `leave_below` percent are left; None: never.
    #[must_use]
    pub fn new(leave_below: Option<u8>) -> Self {
        Self { leave_below, rest: 0 }
    }

    /// Why the node is to leave the cluster now, if it is. To be asked once each heartbeat.
    pub fn look(&mut self, charge: Option<Charge>) -> Option<String> {
        let below = self.leave_below?;
        let Some(charge) = charge.filter(|charge| charge.drains && charge.percent < below) else {
            self.rest = 0;
            return None;
        };
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        self.rest = LOOKS_UNTIL_AGAIN;
        Some(format!("its battery has {} % left, less than {below} %", charge.percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn battery(files: &[(&str, &[(&str, &str)])]) -> Option<Charge> {
        let folder = tempfile::tempdir().unwrap();
        for (supply, values) in files {
            let supply = folder.path().join(supply);
            std::fs::create_dir(&supply).unwrap();
            for (name, value) in *values {
                std::fs::write(supply.join(name), format!("{value}\n")).unwrap();
            }
        }
        Battery { folder: folder.path().to_owned() }.charge()
    }

    #[test]
    fn charge_and_what_charges() {
        let one = |status| {
            battery(&[("b", &[("type", "Battery"), ("capacity", "14"), ("status", status)])])
        };
        assert_eq!(one("Discharging"), Some(Charge { percent: 14, drains: true }));
        for status in ["Charging", "Full", "Not charging"] {
            assert_eq!(one(status), Some(Charge { percent: 14, drains: false }), "{status}");
        }
        // It does not say: what else is plugged in tells.
        assert_eq!(one("Unknown"), Some(Charge { percent: 14, drains: true }));
        let unknown: &[(&str, &str)] = &[("type", "Battery"), ("capacity", "14")];
        let usb =
            |online| battery(&[("b", unknown), ("usb", &[("type", "USB"), ("online", online)])]);
        assert_eq!(usb("1"), Some(Charge { percent: 14, drains: false }));
        assert_eq!(usb("0"), Some(Charge { percent: 14, drains: true }));
    }

    #[test]
    fn no_battery_a_mouse_and_two() {
        assert_eq!(battery(&[]), None);
        assert_eq!(battery(&[("ac", &[("type", "Mains"), ("online", "1")])]), None);
        let mouse: &[(&str, &str)] = &[("type", "Battery"), ("capacity", "3"), ("scope", "Device")];
        assert_eq!(battery(&[("mouse", mouse)]), None);
        let low: &[(&str, &str)] =
            &[("type", "Battery"), ("capacity", "3"), ("status", "Discharging")];
        let high: &[(&str, &str)] =
            &[("type", "Battery"), ("capacity", "80"), ("status", "Unknown")];
        assert_eq!(battery(&[("a", low), ("b", high)]), Some(Charge { percent: 80, drains: true }));
        let missing = Battery { folder: "/not/there".into() };
        assert_eq!(missing.charge(), None);
    }

    #[test]
    fn leaves_below_the_threshold_while_it_drains() {
        let at = |percent, drains| Some(Charge { percent, drains });
        let mut guard = BatteryGuard::new(Some(15));
        assert_eq!(guard.look(None), None);
        assert_eq!(guard.look(at(15, true)), None);
        assert_eq!(guard.look(at(14, false)), None);
        let reason = guard.look(at(14, true));
        assert_eq!(reason.as_deref(), Some("its battery has 14 % left, less than 15 %"));
        // Announced once a minute at most, and at once after it was charged in between.
        assert_eq!((0..LOOKS_UNTIL_AGAIN).find_map(|_| guard.look(at(13, true))), None);
        assert!(guard.look(at(13, true)).is_some());
        assert_eq!(guard.look(at(13, false)), None);
        assert!(guard.look(at(12, true)).is_some());
        let mut never = BatteryGuard::new(None);
        assert_eq!(never.look(at(0, true)), None);
    }
}
