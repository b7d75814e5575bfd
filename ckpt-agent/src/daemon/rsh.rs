//! `ckptd rsh`: what mpirun calls instead of ssh. Hands its standard streams to the agent and waits,
//! single-threaded, in one read.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::DaemonError;
use super::shell_call::{SOCKET, ShellReply, ShellRequest, VARIABLE};
use crate::engine::job_init::Channel;

/// Variables that go along: those by which MPI run times configure what they start, and what is needed
/// to find programs.
const PREFIXES: [&str; 8] =
    ["OMPI_", "PMIX_", "PMI_", "PRTE_", "UCX_", "MPIR_", "MPICH_", "HYDRA_"];
const NAMES: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "LANG"];

/// The status by which ssh says that it could not do its part.
const NOT_STARTED: u8 = 255;

/// Runs a command on a node, as ssh would: the words joined by spaces, for the shell there. Returns
/// the exit status, 128+N where a signal N ended it.
///
/// `dir` is the agent's folder, for a caller whose environment does not name its socket.
///
/// # Errors
/// No agent, or a caller outside of a job.
pub fn rsh(dir: &Path, node: &str, command: &[OsString]) -> Result<u8, DaemonError> {
    let socket = std::env::var_os(VARIABLE).map_or_else(|| dir.join(SOCKET), PathBuf::from);
    let request = ShellRequest {
        node: node.to_owned(),
        line: join(command),
        environment: std::env::vars_os().filter(|(name, _)| goes_along(name)).collect(),
        working_directory: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
    };
    let stream = UnixStream::connect(&socket).map_err(DaemonError::system(format!(
        "reach the agent at {} (is this inside of a job on a cluster?)",
        socket.display()
    )))?;
    let channel = Channel::new(stream);
    let lost = |error| DaemonError::Unfit(format!("talk to the agent: {error}"));
    channel.send(&request, &streams()?).map_err(lost)?;
    match channel.receive::<ShellReply>().map_err(lost)?.0 {
        ShellReply::Ended(kind) => Ok(kind.shell_status()),
        ShellReply::Failed(reason) => {
            eprintln!("ckptd: failed to run a command on {node}: {reason}");
            Ok(NOT_STARTED)
        }
    }
}

fn join(command: &[OsString]) -> OsString {
    let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
    OsString::from_vec(words.join(&b' '))
}

fn goes_along(name: &OsStr) -> bool {
    let name = name.as_bytes();
    PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
        || NAMES.iter().any(|known| name == known.as_bytes())
}

/// Copies of the three standard streams. One that is closed is /dev/null.
fn streams() -> Result<Vec<OwnedFd>, DaemonError> {
    let copies = [
        std::io::stdin().as_fd().try_clone_to_owned(),
        std::io::stdout().as_fd().try_clone_to_owned(),
        std::io::stderr().as_fd().try_clone_to_owned(),
    ];
    copies
        .into_iter()
        .map(|copy| match copy {
            Ok(copy) => Ok(copy),
            Err(_) => std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/null")
                .map(OwnedFd::from)
                .map_err(DaemonError::system("open /dev/null")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_joined_as_ssh_joins_them() {
        assert_eq!(join(&["a".into(), "b c".into(), "$X".into()]), "a b c $X");
        assert_eq!(join(&[]), "");
    }

    #[test]
    fn only_what_run_times_need_goes_along() {
        for name in ["OMPI_MCA_btl", "PMIX_RANK", "PATH", "HYDRA_X", "UCX_TLS"] {
            assert!(goes_along(OsStr::new(name)), "{name}");
        }
        for name in ["HOME", "PATHS", "SECRET", "CKPTD_AGENT_SOCKET"] {
            assert!(!goes_along(OsStr::new(name)), "{name}");
        }
    }
}
