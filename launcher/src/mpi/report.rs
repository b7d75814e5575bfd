//! What `ckptd doctor --mpi` tells.

use super::{Found, find_program, own, recognise, separate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What is told of a launcher.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The launcher, as it was asked for.
    pub launcher: String,
    /// Where it was found.
    pub path: Option<PathBuf>,
    /// Whose it is; `None`: nothing that ckptd knows.
    #[serde(flatten)]
    pub known: Option<Known>,
}

/// What is known of its run time.
#[derive(Debug, Serialize)]
pub struct Known {
    /// What it is called.
    pub run_time: &'static str,
    /// Its release, as it tells it.
    pub release: Option<String>,
    /// Releases that are tested.
    pub tested: &'static str,
    /// What ranks have between each other on a cluster.
    pub transport_on_a_cluster: String,
    /// How they move there.
    pub moves: &'static str,
    /// What they have on one machine.
    pub transport_alone: String,
    /// Variables by which that is so, unless the user has set them.
    pub settings: BTreeMap<&'static str, &'static str>,
    /// Those of them that this environment has already.
    pub set_by_user: BTreeMap<String, String>,
    /// What it costs.
    pub cost: &'static str,
    /// What one should know.
    pub caution: Option<String>,
}

/// Looks a launcher up and asks it who it is.
pub fn of(launcher: &OsStr, environment: &[(OsString, OsString)]) -> Report {
    let path =
        environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    let directory = std::env::current_dir().unwrap_or_else(|_| Path::new("/").to_owned());
    let path = find_program(launcher, path, &directory);
    let found = path.as_ref().and_then(|path| recognise(launcher, path));
    Report {
        launcher: launcher.to_string_lossy().into_owned(),
        path,
        known: found.map(|found| known(&found, environment)),
    }
}

fn known(found: &Found, environment: &[(OsString, OsString)]) -> Known {
    let profile = found.run_time.profile();
    let set_by_user = environment.iter().filter_map(|(name, value)| {
        let (name, value) = (name.to_str()?, value.to_string_lossy().into_owned());
        let is_one = profile.separable.iter().any(|(known, _)| *known == name);
        is_one.then(|| (name.to_owned(), value))
    });
    let told = profile.separable.iter().copied();
    let undone = own::other_than(found.run_time, told, &[], environment);
    let said = own::warning(&undone).into_iter().chain(separate::caution(found));
    let said: Vec<String> = said.collect();
    let by_user = |usual: &'static str| match own::listed(&undone) {
        None => usual.to_owned(),
        Some(listed) => format!("what your {listed} gives, not {usual}"),
    };
    Known {
        run_time: profile.name,
        release: found.release().map(str::to_owned),
        tested: profile.tested,
        transport_on_a_cluster: by_user(profile.transport),
        moves: profile.moves,
        transport_alone: by_user(if profile.alone { profile.transport } else { "shared memory" }),
        settings: profile.separable.iter().copied().collect(),
        set_by_user: set_by_user.collect(),
        cost: profile.cost,
        caution: (!said.is_empty()).then(|| said.join("; ")),
    }
}

impl Report {
    /// For people.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, what: &str| {
            let _ = writeln!(text, "{name:<13} {what}");
        };
        match &self.path {
            Some(path) => line("launcher", &path.display().to_string()),
            None => line("launcher", &format!("{}: there is no such program", self.launcher)),
        }
        let Some(known) = &self.known else {
            if self.path.is_some() {
                line(
                    "run time",
                    "none that ckptd knows: its daemons and ranks run as any other program",
                );
            }
            return text;
        };
        let release = known.release.as_deref().unwrap_or("of an unknown release");
        line("run time", &format!("{} {release} (tested: {})", known.run_time, known.tested));
        line("on a cluster", &format!("{}; {}", known.transport_on_a_cluster, known.moves));
        line("", "daemons start by 'ckptd rsh' on the cluster's nodes");
        line("one machine", &known.transport_alone);
        line("cost", known.cost);
        for (name, value) in &known.settings {
            match known.set_by_user.get(*name) {
                Some(own) if own != value => {
                    line("setting", &format!("{name}={own}, yours: not {value}"))
                }
                _ => line("setting", &format!("{name}={value}")),
            }
        }
        line("", "'--placement node' leaves shared memory on: a node's ranks move together");
        line("", "'--group N' leaves it on within groups of N ranks, which move together");
        if let Some(caution) = &known.caution {
            line("caution", caution);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::recognise::tests::script;
    use super::*;

    #[test]
    fn a_launcher_is_described() {
        let dir = tempfile::tempdir().unwrap();
        script(&dir.path().join("mpirun"), "#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n");
        script(&dir.path().join("sleep"), "#!/bin/sh\necho 'no'\n");
        let environment = [
            ("PATH".into(), dir.path().as_os_str().to_owned()),
            ("OMPI_MCA_btl".into(), "self,sm".into()),
        ];
        let report = of(OsStr::new("mpirun"), &environment);
        let text = report.describe();
        assert!(text.contains("Open MPI 5.0.11 (tested: "), "{text}");
        assert!(text.contains("OMPI_MCA_btl=self,sm, yours: not self,tcp"), "{text}");
        assert!(text.contains("what your OMPI_MCA_btl=self,sm gives, not TCP"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["run_time"], "Open MPI");
        assert_eq!(json["settings"]["PMIX_MCA_gds"], "hash");
        let other = of(OsStr::new("sleep"), &environment);
        assert!(other.known.is_none() && other.describe().contains("none that ckptd knows"));
        let missing = of(OsStr::new("mpiexec"), &environment);
        assert!(missing.path.is_none() && missing.describe().contains("no such program"));
    }
}
