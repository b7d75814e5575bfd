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
use ckpt_engine::job_init::{Channel, shown_by_init};
use ckpt_engine::split::standin::become_remote_shell;
use protocol::cluster::group;

/// Variables that go along: those by which MPI run times configure what they start, and what is needed
/// to find programs.
const PREFIXES: [&str; 10] =
    ["OMPI_", "PMIX_", "PMI_", "PRTE_", "UCX_", "MPIR_", "MPICH_", "HYDRA_", "I_MPI_", "FI_"];
const NAMES: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "LANG", group::VARIABLE];

/// Variables that say where a process is, or who has started it.
const OF_A_NODE: [&str; 22] = [
    "HOSTNAME",
    "HOME",
    "LOGNAME",
    "OLDPWD",
    "PWD",
    "SHELL",
    "SHLVL",
    "SLURMD_NODENAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_GTIDS",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "SLURM_TASK_PID",
    "SLURM_TOPOLOGY_ADDR",
    "TMPDIR",
    "USER",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
    "DISPLAY",
    "_",
];
/// The same, by how they begin.
const OF_NODES: [&str; 3] = ["CKPTD_", "SLURM_SRUN_", "SLURM_STEP_"];

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
        environment: taken_along(std::env::vars_os().collect()),
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

/// The agent that runs this part of the job now, as the job's init tells: after a move, or in another allocation, it is another
/// than the one that has started it, whose socket the environment names.
fn connect(dir: &Path) -> Result<UnixStream, AgentError> {
    let told = shown_by_init(std::process::id() as i32);
    let is_inside = told.is_some();
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let mut sockets = told.into_iter().chain(named).chain([dir.join(SOCKET)]).peekable();
    let first = sockets.peek().cloned().unwrap_or_default();
    let mut failed = None;
    for socket in sockets {
        match UnixStream::connect(&socket) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let cause = failed.unwrap_or_else(|| std::io::ErrorKind::NotFound.into());
    let what = format!("reach the agent at {}", first.display());
    // It may be on its way.
    match is_inside {
        true => Err(AgentError::Unfit(format!("{what}: {cause}"))),
        false => Err(
            AgentError::system(format!("{what} (is this inside of a job on a cluster?)"))(cause),
        ),
    }
}

fn join(command: &[OsString]) -> OsString {
    let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
    OsString::from_vec(words.join(&b' '))
}

/// What of the caller's environment goes along. In an allocation of Slurm that is nearly all, as with daemons that srun starts
/// (srun(1), --export): what a script or a module has set is meant for all nodes.
fn taken_along(mut environment: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let in_slurm = environment.iter().any(|(name, _)| name == "SLURM_JOB_ID");
    environment.retain(|(name, _)| goes_along(name) || (in_slurm && is_for_all_nodes(name)));
    environment
}

fn goes_along(name: &OsStr) -> bool {
    let name = name.as_bytes();
    PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
        || NAMES.iter().any(|known| name == known.as_bytes())
}

/// Whether a variable is neither one of a machine, a login or a task, nor ckptd's own.
fn is_for_all_nodes(name: &OsStr) -> bool {
    let name = name.as_bytes();
    !OF_A_NODE.iter().any(|known| name == known.as_bytes())
        && !OF_NODES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
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

    #[test]
    fn in_slurm_what_a_script_has_set_goes_along() {
        let set = ["PYTHONPATH", "OMP_NUM_THREADS", "PWD", "CKPTD_GROUP", "CKPTD_AGENT_SOCKET"];
        let taken = |more: &[&str]| -> Vec<OsString> {
            let all = set.iter().chain(more).map(|name| (OsString::from(name), OsString::new()));
            taken_along(all.collect()).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(taken(&[]), ["CKPTD_GROUP"]);
        let in_slurm = taken(&["SLURM_JOB_ID", "SLURM_PROCID"]);
        assert_eq!(in_slurm, ["PYTHONPATH", "OMP_NUM_THREADS", "CKPTD_GROUP", "SLURM_JOB_ID"]);
    }
}
