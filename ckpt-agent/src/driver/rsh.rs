//! `ckptd rsh`: what mpirun calls instead of ssh. Hands its standard streams to the agent and becomes a
//! stand-in for the program on the other node, whose end is its own.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::AgentError;
use super::shell_call::{SOCKET, ShellReply, ShellRequest, VARIABLE};
use ckpt_engine::job_init::Channel;
use ckpt_engine::split::standin::become_remote_shell;
use protocol::cluster::group;

/// Variables that go along: those by which MPI run times configure what they start, and what is needed
/// to find programs.
const PREFIXES: [&str; 10] =
    ["OMPI_", "PMIX_", "PMI_", "PRTE_", "UCX_", "MPIR_", "MPICH_", "HYDRA_", "I_MPI_", "FI_"];
const NAMES: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "LANG", group::VARIABLE];

/// The status by which ssh says that it could not do its part.
const NOT_STARTED: u8 = 255;

/// How often the call is made again that an agent has not answered: a rollback may have brought this process
/// to another one's machine meanwhile.
const TRIES: u32 = 20;
/// The pause between.
const PAUSE: Duration = Duration::from_millis(250);

/// Runs a command on a node, as ssh would: the words joined by spaces, for the shell there. This process
/// ends as the command does; it returns only where that was not started, with the exit status.
///
/// `dir` is the agent's folder, for a caller whose environment does not name its socket.
///
/// # Errors
/// No agent, or a caller outside of a job.
pub fn rsh(dir: &Path, node: &str, command: &[OsString]) -> Result<u8, AgentError> {
    let request = ShellRequest {
        node: node.to_owned(),
        has_groups: std::env::var_os(group::VARIABLE).is_some(),
        line: join(command),
        environment: std::env::vars_os().filter(|(name, _)| goes_along(name)).collect(),
        working_directory: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        pid: std::process::id() as i32,
        parent: nix::unistd::getppid().as_raw(),
    };
    let mut tries = 1;
    let (reply, link, far) = loop {
        match call(dir, &request) {
            Ok(called) => break called,
            Err(AgentError::Unfit(_)) if tries < TRIES => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
        tries += 1;
    };
    let reason = match reply {
        ShellReply::Started => match become_remote_shell(link, Some(far)) {
            Err(error) => error.to_string(),
        },
        ShellReply::Failed(reason) => reason,
    };
    eprintln!("ckptd: failed to run a command on {node}: {reason}");
    Ok(NOT_STARTED)
}

/// The answer, this process's end of the link, and a copy of the agent's.
fn call(dir: &Path, request: &ShellRequest) -> Result<(ShellReply, OwnedFd, OwnedFd), AgentError> {
    let (link, far) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|errno| AgentError::system("make a link")(errno.into()))?;
    let copy = far.try_clone().map_err(AgentError::system("copy a descriptor"))?;
    let channel = Channel::new(connect(dir)?);
    let lost = |error| AgentError::Unfit(format!("talk to the agent: {error}"));
    let descriptors: Vec<OwnedFd> = std::iter::once(copy).chain(streams()?).collect();
    channel.send(request, &descriptors).map_err(lost)?;
    let (reply, _) = channel.receive::<ShellReply>().map_err(lost)?;
    Ok((reply, link, far))
}

/// The agent that started the job's part named its socket; after a move that may be elsewhere.
fn connect(dir: &Path) -> Result<UnixStream, AgentError> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    if let Some(stream) = named.as_ref().and_then(|socket| UnixStream::connect(socket).ok()) {
        return Ok(stream);
    }
    let socket = dir.join(SOCKET);
    UnixStream::connect(&socket).map_err(AgentError::system(format!(
        "reach the agent at {} (is this inside of a job on a cluster?)",
        named.unwrap_or(socket).display()
    )))
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
fn streams() -> Result<Vec<OwnedFd>, AgentError> {
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
                .map_err(AgentError::system("open /dev/null")),
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
        for name in ["OMPI_MCA_btl", "PMIX_RANK", "PATH", "HYDRA_X", "UCX_TLS", "CKPTD_GROUP"] {
            assert!(goes_along(OsStr::new(name)), "{name}");
        }
        for name in ["HOME", "PATHS", "SECRET", "CKPTD_AGENT_SOCKET"] {
            assert!(!goes_along(OsStr::new(name)), "{name}");
        }
    }
}
