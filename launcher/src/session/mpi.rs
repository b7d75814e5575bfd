//! The settings by which the ranks of Open MPI and of MPICH can be separated.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whose a launcher of MPI jobs is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's mpiexec: hydra.
    Mpich,
}

/// Names under which they are called.
const NAMES: [&str; 9] = [
    "mpirun",
    "mpiexec",
    "orterun",
    "prterun",
    "mpirun.openmpi",
    "mpiexec.openmpi",
    "mpiexec.hydra",
    "mpiexec.mpich",
    "mpirun.mpich",
];

/// No shared memory between ranks, all connections made at the start, no binding to cores that
/// moved ranks would share.
const OPEN_MPI_SETTINGS: [(&str, &str); 4] = [
    ("OMPI_MCA_btl", "self,tcp"),
    ("PMIX_MCA_gds", "hash"),
    ("OMPI_MCA_mpi_preconnect_mpi", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
];

/// No shared memory between ranks: neither UCX's nor MPICH's own. Hydra hands the environment to all ranks.
const MPICH_SETTINGS: [(&str, &str); 2] = [("UCX_TLS", "tcp,self"), ("MPIR_CVAR_NOLOCAL", "1")];

/// The first MPICH that does not hang in MPI_Finalize over UCX's TCP.
const MPICH_REPAIRED: (u32, u32) = (4, 2);

/// Where the processes of a job may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// They stay on one machine.
    Machine,
    /// Each may come to be on another machine.
    Cluster,
}

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

/// Adds the settings to the environment of a launcher of MPI jobs, but those that the user has set. What the user
/// should know about them.
///
/// On one machine the ranks of MPICH keep their shared memory: they stay together anyway, and many a version may hang at
/// its end without.
pub fn prepare(
    program: &OsStr,
    found: &Path,
    reach: Reach,
    environment: &mut Vec<(OsString, OsString)>,
) -> Option<String> {
    let (settings, caution) = match (make(program, found), reach) {
        (Some(Make::OpenMpi), _) => (&OPEN_MPI_SETTINGS[..], None),
        (Some(Make::Mpich), Reach::Cluster) => {
            (&MPICH_SETTINGS[..], version(found).and_then(|text| caution(&text)))
        }
        _ => (&[][..], None),
    };
    let mut changed = false;
    for (name, value) in settings {
        if !environment.iter().any(|(set, _)| set == name) {
            environment.push((name.into(), value.into()));
            changed = true;
        }
    }
    caution.filter(|_| changed)
}

/// What users of this MPICH should know, by its answer to --version. Its MPI_Finalize flushes all connections, then waits for
/// the process manager and answers nobody any more, which UCX's TCP needs to flush since 1.12: a rank that has answered
/// before, from within another call, and flushes after that waits for ever. MPICH 4.2 waits first.
fn caution(answer: &str) -> Option<String> {
    let version = answer.lines().find_map(|line| line.trim().strip_prefix("Version:"))?.trim();
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    let release = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (release < MPICH_REPAIRED && answer.contains("ch4:ucx")).then(|| {
        format!(
            "MPICH {version} may hang in MPI_Finalize over TCP, with ckptd or without, if a rank comes there while \
             others still take messages: let ranks rest for a moment after a last MPI_Barrier, or use MPICH 4.2"
        )
    })
}

/// Whose launcher of MPI jobs a program is, if it is one: by the name that it is a link to, else by what it
/// says.
pub fn make(program: &OsStr, found: &Path) -> Option<Make> {
    let base = Path::new(program).file_name().and_then(OsStr::to_str)?;
    if !NAMES.contains(&base) {
        return None;
    }
    let real = std::fs::canonicalize(found).unwrap_or_else(|_| found.to_owned());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let named = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if named(&["orterun", "openmpi", "prterun"]) {
        return Some(Make::OpenMpi);
    }
    if named(&["hydra", "mpich"]) {
        return Some(Make::Mpich);
    }
    if named(&["slurm"]) {
        return None;
    }
    let version = version(found)?;
    if version.contains("Open MPI") {
        Some(Make::OpenMpi)
    } else {
        version.contains("HYDRA").then_some(Make::Mpich)
    }
}

/// What it says to --version.
fn version(found: &Path) -> Option<String> {
    let mut child = Command::new(found)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let end = Instant::now() + VERSION_LIMIT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
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
        let caution = prepare(program.as_os_str(), program, Reach::Cluster, &mut environment);
        assert_eq!(caution, None);
        environment
    }

    #[test]
    fn launchers_are_told_what_separates_their_ranks() {
        let dir = tempfile::tempdir().unwrap();
        let mpirun = dir.path().join("mpirun");
        script(&mpirun, "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n");
        assert_eq!(settings(&mpirun, &[]).len(), 4);
        let own = settings(&mpirun, &[("OMPI_MCA_btl", "vader,self")]);
        assert_eq!(own.len(), 4);
        assert_eq!(own[0].1, "vader,self");
        let hydra = dir.path().join("mpiexec");
        script(&hydra, "#!/bin/sh\necho 'HYDRA build details'\n");
        assert_eq!(settings(&hydra, &[("UCX_TLS", "all")]).len(), 2);
        assert_eq!(settings(&hydra, &[])[0], ("UCX_TLS".into(), "tcp,self".into()));
        let linked = dir.path().join("mpirun.mpich");
        std::os::unix::fs::symlink(dir.path().join("mpiexec.hydra"), &linked).unwrap();
        script(&dir.path().join("mpiexec.hydra"), "#!/bin/sh\nexit 1\n");
        assert_eq!(make(OsStr::new("mpirun.mpich"), &linked), Some(Make::Mpich));
        let named = dir.path().join("nqueens");
        script(&named, "#!/bin/sh\necho 'Open MPI'\n");
        assert_eq!(settings(&named, &[]), []);
    }

    #[test]
    fn mpich_keeps_its_shared_memory_on_one_machine() {
        let dir = tempfile::tempdir().unwrap();
        let hydra = dir.path().join("mpiexec.hydra");
        script(&hydra, "#!/bin/sh\necho 'HYDRA build details'\n");
        let mut environment = Vec::new();
        prepare(hydra.as_os_str(), &hydra, Reach::Machine, &mut environment);
        assert_eq!(environment, []);
    }

    #[test]
    fn mpich_that_may_hang_is_known() {
        let text = |version: &str, device: &str| {
            format!("HYDRA build details:\n    Version:    {version}\n    Options: '{device}'\n")
        };
        for version in ["4.0.2", "4.1.3", "3.4.3", "4.1rc2"] {
            let told = caution(&text(version, "--with-device=ch4:ucx"));
            assert!(told.is_some_and(|line| line.starts_with(&format!("MPICH {version} "))));
            assert_eq!(caution(&text(version, "--with-device=ch4:ofi")), None);
        }
        for version in ["4.2.0", "4.3.1", "5.0", "unknown"] {
            assert_eq!(caution(&text(version, "--with-device=ch4:ucx")), None, "{version}");
        }
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
