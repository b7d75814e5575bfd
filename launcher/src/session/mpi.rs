//! The settings by which Open MPI's ranks can be separated.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// No shared memory between ranks, all connections made at the start, no binding to cores that
/// moved ranks would share.
const SETTINGS: [(&str, &str); 4] = [
    ("OMPI_MCA_btl", "self,tcp"),
    ("PMIX_MCA_gds", "hash"),
    ("OMPI_MCA_mpi_preconnect_mpi", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
];

/// How long a launcher of unknown make may take to say what it is.
const VERSION_LIMIT: Duration = Duration::from_secs(5);

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

/// Adds the settings to the environment of Open MPI's mpirun, but those that the user has set.
pub fn prepare(program: &OsStr, found: &Path, environment: &mut Vec<(OsString, OsString)>) {
    if !is_mpirun(program, found) {
        return;
    }
    for (name, value) in SETTINGS {
        if !environment.iter().any(|(set, _)| set == name) {
            environment.push((name.into(), value.into()));
        }
    }
}

/// Whether a program is Open MPI's mpirun.
pub fn is_mpirun(program: &OsStr, found: &Path) -> bool {
    let base = Path::new(program).file_name().and_then(OsStr::to_str);
    matches!(base, Some("mpirun" | "mpiexec" | "orterun" | "prterun")) && is_open_mpi(found)
}

/// Whether a launcher is Open MPI's: by the name that it is a link to, else by what it says.
fn is_open_mpi(found: &Path) -> bool {
    let real = std::fs::canonicalize(found).unwrap_or_else(|_| found.to_owned());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let named = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if named(&["orterun", "openmpi", "prterun"]) {
        return true;
    }
    !named(&["hydra", "mpich", "slurm"]) && says_open_mpi(found)
}

fn says_open_mpi(found: &Path) -> bool {
    let child = Command::new(found)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    let end = Instant::now() + VERSION_LIMIT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child
        .wait_with_output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("Open MPI"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn script(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn settings(program: &Path, set: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let mut environment = set.iter().map(|(name, value)| (name.into(), value.into())).collect();
        prepare(program.as_os_str(), program, &mut environment);
        environment
    }

    #[test]
    fn only_open_mpi_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mpirun = dir.path().join("mpirun");
        script(&mpirun, "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n");
        assert_eq!(settings(&mpirun, &[]).len(), 4);
        let own = settings(&mpirun, &[("OMPI_MCA_btl", "vader,self")]);
        assert_eq!(own.len(), 4);
        assert_eq!(own[0].1, "vader,self");
        let other = dir.path().join("mpiexec");
        script(&other, "#!/bin/sh\necho 'HYDRA build details'\n");
        assert_eq!(settings(&other, &[]), []);
        let named = dir.path().join("nqueens");
        script(&named, "#!/bin/sh\necho 'Open MPI'\n");
        assert_eq!(settings(&named, &[]), []);
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
