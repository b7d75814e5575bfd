//! Whose launcher of MPI jobs a program is.

use super::RunTime;
use super::version::{asked, release, release_text};
use crate::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What they are called, perhaps with an ending: mpirun, mpirun.openmpi, mpiexec.hydra ... What is called otherwise is not
/// asked who it is: it would be run.
const NAMES: [&str; 6] = ["mpirun", "mpiexec", "orterun", "prterun", "prte", "prun"];

/// A launcher of MPI jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Whose it is.
    pub run_time: RunTime,
    /// What it says to --version.
    pub answer: String,
}

impl Found {
    /// Its release, as it tells it.
    pub fn release(&self) -> Option<&str> {
        release_text(&self.answer)
    }
}

/// Whether a launcher may be called that.
pub fn is_launcher_name(base: &str) -> bool {
    let is_one = |name: &&str| {
        base.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    NAMES.iter().any(is_one)
}

/// Whose launcher of MPI jobs a program is, if it is one: by what it says, else by the name that it is a link to.
pub fn recognise(program: &OsStr, found: &Path) -> Option<Found> {
    let base = Path::new(program).file_name().and_then(OsStr::to_str)?;
    if !is_launcher_name(base) {
        return None;
    }
    let real = std::fs::canonicalize(found).unwrap_or_else(|_| found.to_owned());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Such a name is srun's, who starts ranks by daemons of Slurm's.
    if name.contains("slurm") {
        return None;
    }
    let answer = asked(found).unwrap_or_default();
    let run_time = by_answer(&answer).or_else(|| by_name(&name))?;
    Some(Found { run_time, answer })
}

fn by_answer(answer: &str) -> Option<RunTime> {
    let is_new = || release_text(answer).and_then(release).is_some_and(|(major, _)| major >= 5);
    let says = |words: &str| answer.contains(words);
    if says("Intel(R) MPI") {
        Some(RunTime::IntelMpi)
    } else if says("Open MPI") && !is_new() {
        Some(RunTime::OpenMpi4)
    } else if says("Open MPI") || says("PRRTE") || says("PMIx Reference RunTime") {
        Some(RunTime::OpenMpi5)
    } else {
        says("HYDRA").then_some(RunTime::Mpich)
    }
}

fn by_name(name: &str) -> Option<RunTime> {
    let named = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if named(&["prte", "prun"]) {
        Some(RunTime::OpenMpi5)
    } else if named(&["orterun", "openmpi"]) {
        Some(RunTime::OpenMpi4)
    } else {
        named(&["hydra", "mpich"]).then_some(RunTime::Mpich)
    }
}

/// Looks a program up as execvp(3) does.
pub fn find_program(program: &OsStr, path: Option<&OsStr>, directory: &Path) -> Option<PathBuf> {
    let executable = |candidate: PathBuf| {
        let mode = std::fs::metadata(&candidate).ok()?;
        (mode.is_file() && mode.permissions().mode() & 0o111 != 0).then_some(candidate)
    };
    if program.as_encoded_bytes().contains(&b'/') {
        return executable(directory.join(program));
    }
    if program.is_empty() {
        return None;
    }
    // As execvp(3) does where PATH is not set.
    let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
    std::env::split_paths(path).find_map(|folder| executable(directory.join(folder).join(program)))
}

/// Why [`find_program`] does not find a program, and the exit status of a shell for that.
pub fn why_not_found(program: &OsStr, directory: &Path) -> (&'static str, u8) {
    let is_path = program.as_encoded_bytes().contains(&b'/');
    match (is_path, is_path && directory.join(program).exists()) {
        (true, true) => ("it is no program, or not executable", EXIT_NOT_EXECUTABLE),
        (true, false) => ("it is not there", EXIT_NOT_FOUND),
        (false, _) => ("there is no such program in PATH", EXIT_NOT_FOUND),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;

    /// An executable that says something.
    pub fn script(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn launchers_are_known_by_what_they_say() {
        let dir = tempfile::tempdir().unwrap();
        let says = |name: &str, answer: &str| {
            let path = dir.path().join(name);
            script(&path, &format!("#!/bin/sh\necho '{answer}'\n"));
            recognise(path.as_os_str(), &path).map(|found| found.run_time)
        };
        assert_eq!(says("mpirun", "mpirun (Open MPI) 4.1.4"), Some(RunTime::OpenMpi4));
        assert_eq!(says("mpirun", "mpirun (Open MPI) 5.0.11"), Some(RunTime::OpenMpi5));
        assert_eq!(says("mpiexec", "HYDRA build details:"), Some(RunTime::Mpich));
        assert_eq!(says("mpiexec.hydra", "Intel(R) MPI Library"), Some(RunTime::IntelMpi));
        assert_eq!(says("prterun", "Sorry! No help."), Some(RunTime::OpenMpi5));
        assert_eq!(says("mpirun.mpich", ""), Some(RunTime::Mpich));
        assert_eq!(says("mpirun", "something else"), None);
        assert_eq!(says("nqueens", "Open MPI"), None);
        assert_eq!(says("mpirun_all.sh", "Open MPI"), None);
        assert_eq!(says("prune", "Open MPI"), None);
        let found = Found { run_time: RunTime::OpenMpi5, answer: "x (Open MPI) 5.0.1".into() };
        assert_eq!(found.release(), Some("5.0.1"));
    }

    #[test]
    fn links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let linked = dir.path().join("mpirun");
        let hydra = dir.path().join("mpiexec.hydra");
        std::os::unix::fs::symlink(&hydra, &linked).unwrap();
        script(&hydra, "#!/bin/sh\nexit 1\n");
        let found = recognise(OsStr::new("mpirun"), &linked).unwrap();
        assert_eq!(found.run_time, RunTime::Mpich);
    }

    #[test]
    fn programs_are_found_as_exec_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        script(&dir.path().join("tool"), "#!/bin/sh\n");
        fs::write(dir.path().join("text"), "").unwrap();
        let path = dir.path().as_os_str();
        let root = Path::new("/");
        let expected = Some(dir.path().join("tool"));
        assert_eq!(find_program(OsStr::new("tool"), Some(path), root), expected);
        assert_eq!(find_program(OsStr::new("text"), Some(path), root), None);
        assert!(find_program(OsStr::new("./tool"), None, dir.path()).is_some());
        assert_eq!(find_program(OsStr::new("./tool"), Some(path), root), None);
        assert_eq!(find_program(OsStr::new(""), Some(path), root), None);
    }
}
