//! Sets of processor features that machines of different age have in common. A C library chooses its functions by the processor on which
//! a program begins; where it is held to such a set, the program can go on elsewhere.

use std::ffi::{OsStr, OsString};

use serde::{Deserialize, Serialize};

/// Tunables of the GNU C library (its manual, chapter Tunables).
const TUNABLES: &str = "GLIBC_TUNABLES";
const HWCAPS: &str = "glibc.cpu.hwcaps=";

/// A set by the name that the psABI of x86-64 has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Baseline {
    /// Every one of them.
    #[serde(rename = "x86-64")]
    V1,
    /// Since 2008: up to SSE4.2.
    #[serde(rename = "x86-64-v2")]
    V2,
    /// Since 2013: up to AVX2.
    #[serde(rename = "x86-64-v3")]
    V3,
    /// With AVX-512.
    #[serde(rename = "x86-64-v4")]
    V4,
}

/// Features of a level beyond those below: as /proc/cpuinfo has them, and as the C library does.
struct Level {
    kernel: &'static [&'static str],
    library: &'static [&'static str],
}

const LEVELS: [Level; 4] = [
    Level {
        kernel: &["cmov", "cx8", "fpu", "fxsr", "lm", "mmx", "sse", "sse2", "syscall"],
        library: &[],
    },
    Level {
        kernel: &["cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"],
        library: &["POPCNT", "SSE4_1", "SSE4_2", "SSSE3"],
    },
    Level {
        kernel: &["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"],
        library: &[
            "AVX",
            "AVX2",
            "AVX2_Usable",
            "AVX_Usable",
            "BMI1",
            "BMI2",
            "FMA",
            "FMA_Usable",
            "LZCNT",
            "MOVBE",
            "XSAVE",
            "XSAVEC",
            "XSAVEC_Usable",
        ],
    },
    Level {
        kernel: &["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"],
        library: &[
            "AVX512BW",
            "AVX512CD",
            "AVX512DQ",
            "AVX512F",
            "AVX512F_Usable",
            "AVX512VL",
            "AVX512DQ_Usable",
        ],
    },
];

/// In no level, and used by the C library where it is there.
const BEYOND: [&str; 6] = ["ERMS", "FSRM", "FMA4", "RTM", "AVX512ER", "AVX512PF"];

impl Baseline {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::V1, Self::V2, Self::V3, Self::V4];

    /// The name by which `--cpu-baseline` takes it, such as `x86-64-v3`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "x86-64",
            Self::V2 => "x86-64-v2",
            Self::V3 => "x86-64-v3",
            Self::V4 => "x86-64-v4",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Its features, as /proc/cpuinfo has them.
    #[must_use]
    pub fn features(self) -> Vec<String> {
        let levels = LEVELS.iter().take(self as usize + 1);
        let mut all: Vec<String> =
            levels.flat_map(|level| level.kernel).map(|name| (*name).to_owned()).collect();
        all.sort_unstable();
        all
    }

    /// A feature of it that a machine with those lacks.
    #[must_use]
    pub fn lacking(self, features: &[String]) -> Option<String> {
        self.features().into_iter().find(|wanted| !features.contains(wanted))
    }

    /// Holds the C library of programs with this environment to it. What the user says there about the processor is replaced.
    pub fn hold(self, environment: &mut Vec<(OsString, OsString)>) {
        let known = environment.iter().find(|(name, _)| name == TUNABLES);
        let tunables = self.tunables(known.map(|(_, value)| value.as_os_str()));
        environment.retain(|(name, _)| name != TUNABLES);
        environment.push((TUNABLES.into(), tunables));
    }

    /// The one to which a program with this variable (NAME=VALUE) in its environment is held.
    #[must_use]
    pub fn of_variable(variable: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(variable.strip_prefix(TUNABLES.as_bytes())?).ok()?;
        let value = value.strip_prefix('=')?;
        let held = value.split(':').filter(|one| one.starts_with(HWCAPS)).collect::<Vec<_>>();
        Self::ALL.into_iter().find(|one| held == [one.hwcaps()])
    }

    /// What the C library does without.
    fn hwcaps(self) -> String {
        let above = LEVELS.iter().skip(self as usize + 1).flat_map(|level| level.library);
        let names: Vec<String> = above.chain(&BEYOND).map(|name| format!("-{name}")).collect();
        format!("{HWCAPS}{}", names.join(","))
    }

    /// The tunables for it, from those that the user has set.
    fn tunables(self, set: Option<&OsStr>) -> OsString {
        let own = self.hwcaps();
        let others = set.and_then(OsStr::to_str).unwrap_or_default().split(':');
        let others = others.filter(|one| !one.is_empty() && !one.starts_with(HWCAPS));
        others.map(str::to_owned).chain([own]).collect::<Vec<_>>().join(":").into()
    }
}

impl std::fmt::Display for Baseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_more() {
        for pair in Baseline::ALL.windows(2) {
            assert_eq!(pair[0].lacking(&pair[1].features()), None);
            assert!(pair[1].lacking(&pair[0].features()).is_some());
        }
        assert_eq!(Baseline::of("x86-64-v3"), Some(Baseline::V3));
        assert_eq!(serde_json::to_string(&Baseline::V2).unwrap(), "\"x86-64-v2\"");
        assert_eq!(Baseline::of("x86-64-v5"), None);
    }

    #[test]
    fn who_is_held_to_it_can_be_told() {
        for baseline in Baseline::ALL {
            let mut environment = vec![(TUNABLES.into(), "glibc.malloc.check=1".into())];
            baseline.hold(&mut environment);
            let (name, value) = environment[0].clone();
            let variable = format!("{}={}", name.to_string_lossy(), value.to_string_lossy());
            assert_eq!(Baseline::of_variable(variable.as_bytes()), Some(baseline));
        }
        for other in ["GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2", "GLIBC_TUNABLES=", "PATH=/bin"] {
            assert_eq!(Baseline::of_variable(other.as_bytes()), None);
        }
    }

    #[test]
    fn other_tunables_stay() {
        let set = OsStr::new("glibc.malloc.check=1:glibc.cpu.hwcaps=-AVX2");
        let all = Baseline::V2.tunables(Some(set)).into_string().unwrap();
        assert!(all.starts_with("glibc.malloc.check=1:glibc.cpu.hwcaps=-AVX,"), "{all}");
        assert!(all.contains(",-AVX512F,") && !all.contains("SSE4"), "{all}");
        assert_eq!(all.matches("hwcaps").count(), 1);
    }
}
