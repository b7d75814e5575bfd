//! A job of processes that ckptd has not started. They have no init of ckptd's above them and live in the machine's own
//! namespaces; strangers hold the other sides of their streams, and go on with them. What ckptd does to them between two
//! checkpoints is nothing: they do not notice its end.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use protocol::launch::AdoptSpec;

use super::{Job, LOOK, external};
use crate::EngineError;
use crate::dump::stat_and_status;
use crate::freeze::refuse_traced;
use crate::objects::{ConsoleTerminal, StdioRole, StrangersTerminal};
use crate::proc::{Members, Tree, is_ended, parent, read_text, shown_by, start_time};
use crate::session::filling::Filling;
use crate::session::folders::session_directories;
use crate::session::{Requests, SessionError};
use crate::sys::exit_status;
use crate::sys::pidfd::PidFd;
use crate::sys::stat::{major, minor};
use crate::sys::tty::SLAVE_MAJORS;

/// How long killed processes may take to end.
const LAST_BREATH: Duration = Duration::from_secs(10);

/// What identifies the other sides of a job's streams to a dump.
type Streams = (Option<ConsoleTerminal>, HashMap<(u64, u64), StdioRole>);

/// What a process executes and where it works, if it can be a job's first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoptable {
    /// Its program and its arguments, as it shows them.
    pub command: Vec<OsString>,
    /// Its working directory.
    pub working_directory: PathBuf,
}

/// Whether a process can be made a job, with all that descend from it: before anything is made for it. They notice nothing
/// of that: a stop would let their sleeps begin anew.
///
/// # Errors
/// A refusal.
pub fn try_to_adopt(pid: i32) -> Result<Adoptable, SessionError> {
    let found = check(pid)?;
    let members = Members::Tree(Tree::of(pid)?);
    members.gather()?;
    for pid in members.list()? {
        may_be_traced(pid)?;
    }
    Ok(found)
}

/// Sees that nobody else traces a process and that this user may.
fn may_be_traced(pid: i32) -> Result<(), EngineError> {
    /// No process has it.
    const NO_DESCRIPTOR: i32 = i32::MAX;
    refuse_traced(pid)?;
    // Takes the same right as ptrace(2): PTRACE_MODE_ATTACH_REALCREDS.
    let answer = PidFd::open(shown_by(pid)?).and_then(|process| process.descriptor(NO_DESCRIPTOR));
    let denied = |error: &EngineError| {
        matches!(error, EngineError::System { source, .. }
            if source.raw_os_error() == Some(libc::EPERM))
    };
    if is_ended(pid) || !answer.as_ref().is_err_and(denied) {
        return Ok(());
    }
    let comm = read_text(&format!("/proc/{pid}/comm"))?.unwrap_or_default();
    let scope = read_text("/proc/sys/kernel/yama/ptrace_scope").ok().flatten();
    let way_out = match scope.as_deref().map(str::trim) {
        Some("0") | None => {
            "run this command as root: it is not dumpable (PR_SET_DUMPABLE), or has rights of its own"
        }
        Some(_) => "run this command as root, or set kernel.yama.ptrace_scope to 0",
    };
    Err(EngineError::Unfit {
        what: format!("process {pid} ({}) may not be traced by this user", comm.trim_end()),
        way_out: way_out.into(),
    })
}

fn check(pid: i32) -> Result<Adoptable, SessionError> {
    let unfit = |what: String, way_out: &str| {
        SessionError::Engine(EngineError::Unfit { what, way_out: way_out.to_owned() })
    };
    if pid <= 0 || start_time(pid).is_none() || is_ended(pid) {
        return Err(unfit(format!("there is no process {pid}"), "look with ps(1)"));
    }
    let status = read_text(&format!("/proc/{pid}/status"))?.unwrap_or_default();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let leader: Option<i32> = line("Tgid:").and_then(|leader| leader.trim().parse().ok());
    if let Some(leader) = leader.filter(|leader| *leader != pid) {
        return Err(unfit(format!("{pid} is a thread of process {leader}"), "adopt the process"));
    }
    let mut above = Some(std::process::id() as i32);
    while let Some(one) = above.filter(|one| *one > 0) {
        if one == pid {
            let what = format!("ckptd itself descends from process {pid}");
            return Err(unfit(what, "run this command from another terminal"));
        }
        above = parent(one);
    }
    let users = line("Uid:").unwrap_or_default();
    let own = nix::unistd::geteuid().as_raw().to_string();
    if let Some(other) = users.split_ascii_whitespace().find(|user| **user != own) {
        let what = format!("process {pid} acts for user {other}");
        return Err(unfit(what, "run this command as that user"));
    }
    may_be_traced(pid)?;
    // One whose main thread has ended shows it by another.
    let folder = PathBuf::from(format!("/proc/{}", shown_by(pid)?));
    let command = std::fs::read(folder.join("cmdline")).unwrap_or_default();
    // A thread of the kernel's has no program.
    let program = std::fs::read_link(folder.join("exe"))
        .map_err(|error| EngineError::system("read", format!("/proc/{pid}/exe"), error))?;
    let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let mut command: Vec<OsString> = words.map(|word| OsStr::from_bytes(word).to_owned()).collect();
    if command.is_empty() {
        command.push(program.into_os_string());
    }
    let working_directory = std::fs::read_link(folder.join("cwd"))
        .map_err(|error| EngineError::system("read", format!("/proc/{pid}/cwd"), error))?;
    Ok(Adoptable { command, working_directory })
}

impl Job {
    /// Makes a job of a process and of those that descend from it.
    ///
    /// # Errors
    /// A refusal, where it can't be one; everything runs on.
    pub fn adopt(spec: AdoptSpec, requests: &Requests) -> Result<Self, SessionError> {
        let AdoptSpec { pid, kept, external: outside } = spec;
        check(pid)?;
        let (process, tree) = (PidFd::open(pid)?, Tree::of(pid)?);
        let members = Members::Tree(tree);
        let over: Arc<AtomicBool> = Arc::default();
        watch(process, requests.clone(), over.clone())?;
        Ok(Self {
            monitor: None,
            init: std::process::id() as i32,
            members,
            root: Some(pid),
            streams: Vec::new(),
            outer: Vec::new(),
            session_directories: session_directories(&environment(pid), &kept),
            kept,
            external: external(outside),
            instance: None,
            watched: None,
            offers: Vec::new(),
            user: None,
            over,
            filling: Filling::default(),
        })
    }

    /// Whether ckptd has not started its processes.
    pub fn is_adopted(&self) -> bool {
        matches!(self.members, Members::Tree(_))
    }

    /// Whether a process group was made by a process of the job.
    pub(super) fn leads(&self, group: i32) -> bool {
        self.members.list().is_ok_and(|all| all.contains(&group))
    }

    /// Waits until those that were killed have ended.
    pub(super) fn wait_adopted_gone(&self) {
        let until = Instant::now() + LAST_BREATH;
        while !self.over.load(Ordering::Acquire)
            && self.members.living() > 0
            && Instant::now() < until
        {
            std::thread::sleep(LOOK);
        }
    }

    /// The terminal and the pipes that its first process has as standard streams. Of terminals there is one at most: that
    /// which controls it, or else the first that it has.
    pub(super) fn streams_of_adopted(&self) -> Result<Streams, EngineError> {
        let mut stdio = HashMap::new();
        let Members::Tree(tree) = &self.members else { return Ok((None, stdio)) };
        let root = tree.root();
        let (stat, _) = stat_and_status(root)?;
        let (kind, index) = stat.tty_nr();
        let is_slave = |kind: u32| SLAVE_MAJORS.contains(&kind);
        let mut terminal = u32::try_from(kind).is_ok_and(is_slave).then_some(index as u32);
        let roles = [StdioRole::Stdin, StdioRole::Stdout, StdioRole::Stderr];
        for (fd, role) in roles.into_iter().enumerate() {
            let path = format!("/proc/{root}/fd/{fd}");
            // It may have closed it.
            let Ok(found) = std::fs::metadata(&path) else { continue };
            let kind = found.file_type();
            if kind.is_char_device() && is_slave(major(found.rdev() as _)) {
                terminal.get_or_insert(minor(found.rdev() as _));
            }
            let is_pipe = std::fs::read_link(&path)
                .is_ok_and(|link| link.as_os_str().as_bytes().starts_with(b"pipe:["));
            if kind.is_fifo() && is_pipe {
                stdio.entry((found.dev(), found.ino())).or_insert(role);
            }
        }
        let strangers = |index| {
            let terminal = StrangersTerminal { index, session: None, foreground: None };
            ConsoleTerminal::Strangers(terminal)
        };
        Ok((terminal.map(strangers), stdio))
    }
}

/// The environment that a process was started with.
fn environment(pid: i32) -> Vec<(OsString, OsString)> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let entries = bytes.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    });
    entries.collect()
}

/// Waits for the end of the first process.
fn watch(process: PidFd, requests: Requests, over: Arc<AtomicBool>) -> Result<(), SessionError> {
    let wait = move || {
        let mut polled = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        while let Err(nix::errno::Errno::EINTR) = poll(&mut polled, PollTimeout::NONE) {}
        let status = exit_status::status(&process);
        over.store(true, Ordering::Release);
        requests.send(move |tracer| tracer.adopted_ended(status));
    };
    std::thread::Builder::new()
        .name("end-watch".into())
        .spawn(wait)
        .map(drop)
        .map_err(SessionError::Spawn)
}
