//! The battery, as the kernel tells of it (Documentation/ABI/testing/sysfs-class-power).

use std::path::{Path, PathBuf};

use ckpt_node::Charge;

/// Names another folder than the kernel's, for tests.
const FOLDER: &str = "CKPTD_POWER_SUPPLY";
/// Where the kernel has its power supplies.
const POWER_SUPPLIES: &str = "/sys/class/power_supply";
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
}
