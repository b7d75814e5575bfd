//! Starts the job's first process.

use crate::sys::restrained::{give_up_all, hand_on_nothing};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::{ForkResult, Pid as UnixPid, fork};
use protocol::launch::{GivenFile, LaunchSpec, StreamKind, WindowSize};

use super::super::error::{EngineError, Result};
use super::super::objects::StdioRole;
use super::super::sys::file_user::FileUser;
use super::super::sys::{abi, tty};
use super::UserOrder;

/// The shell's status for a program that is not there.
const NOT_FOUND: i32 = 127;
/// The shell's status for a program that cannot be executed.
const NOT_EXECUTABLE: i32 = 126;

/// The job's ends of its streams, and the launcher's.
struct Streams {
    job: [Option<OwnedFd>; 3],
    terminal: Option<OwnedFd>,
    console: Vec<(StdioRole, OwnedFd)>,
}

/// Starts the program; its number and the launcher's ends of its streams.
///
/// # Errors
/// A program that does not exist or may not be executed; no terminals.
pub fn launch(
    spec: &LaunchSpec,
    user: Option<&UserOrder>,
    warnings: &mut Vec<String>,
) -> Result<(UnixPid, Vec<(StdioRole, OwnedFd)>)> {
    let _acting = user.map(|user| FileUser::begin(user.uid, user.gid, &user.groups)).transpose()?;
    let program = find_program(spec)?;
    let streams = make_streams(spec)?;
    let arguments = strings(spec.program.iter())?;
    let mut environment = spec.environment.clone();
    set_temporary(&mut environment, spec.kept.temporary.as_deref(), &spec.given, warnings);
    let environment = strings(environment.iter().map(|(name, value)| {
        let mut entry = name.clone();
        entry.push("=");
        entry.push(value);
        entry
    }))?;
    let path = c_string(program.as_os_str())?;
    let directory = spec.working_directory.clone();
    // SAFETY: this process is single-threaded, so the child may go on as ordinary code.
    match unsafe { fork() }.map_err(|errno| EngineError::system("fork", "the job", errno))? {
        ForkResult::Parent { child } => Ok((child, streams.console)),
        ForkResult::Child => {
            let status = become_job(&path, &arguments, &environment, &directory, streams, user);
            // SAFETY: ends this child without running anything of the parent's.
            unsafe { libc::_exit(status) }
        }
    }
}

/// Makes the folder of the job's temporary files with what the job is given there, and names both in its environment.
fn set_temporary(
    environment: &mut Vec<(OsString, OsString)>,
    folder: Option<&Path>,
    given: &[GivenFile],
    warnings: &mut Vec<String>,
) {
    let Some(folder) = folder else { return };
    if let Err(error) = std::fs::DirBuilder::new().mode(0o700).create(folder) {
        warnings.push(format!(
            "{} can't be made ({error}): temporary files that are closed at a checkpoint do not go back with the job",
            folder.display()
        ));
        return;
    }
    environment.retain(|(name, _)| name != "TMPDIR");
    environment.push(("TMPDIR".into(), folder.into()));
    for file in given {
        if let Err(error) = give(environment, folder, file) {
            warnings.push(format!("{} can't be made in {} ({error})", file.name, folder.display()));
        }
    }
}

/// Makes a file, and names it in the variables that the user has not set.
fn give(
    environment: &mut Vec<(OsString, OsString)>,
    folder: &Path,
    file: &GivenFile,
) -> std::io::Result<()> {
    if !file.is_sound() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let path = folder.join(&file.name);
    std::fs::write(&path, &file.content)?;
    for variable in &file.variables {
        if !environment.iter().any(|(name, _)| name == variable.as_str()) {
            environment.push((variable.into(), path.clone().into()));
        }
    }
    Ok(())
}

fn c_string(text: &OsStr) -> Result<CString> {
    CString::new(text.as_bytes())
        .map_err(|_| EngineError::odd("argument or environment", "a NUL byte within".to_owned()))
}

fn strings<T: AsRef<OsStr>>(texts: impl Iterator<Item = T>) -> Result<Vec<CString>> {
    texts.map(|text| c_string(text.as_ref())).collect()
}

/// Finds a program as execvp(3) does, with the job's PATH.
fn find_program(spec: &LaunchSpec) -> Result<PathBuf> {
    let name = spec.program.first().cloned().unwrap_or_default();
    let unfit = |why: &str| EngineError::Unfit {
        what: format!("{} {why}", name.to_string_lossy()),
        way_out: "check the command's name and PATH".into(),
    };
    let absolute = |path: PathBuf| spec.working_directory.join(path);
    if name.as_bytes().contains(&b'/') {
        let path = absolute(PathBuf::from(&name));
        return match is_executable(&path) {
            true => Ok(path),
            false if path.exists() => Err(unfit("is not executable")),
            false => Err(unfit("does not exist")),
        };
    }
    let search: OsString = spec
        .environment
        .iter()
        .find(|(variable, _)| variable == "PATH")
        .map_or_else(|| "/usr/local/bin:/usr/bin:/bin".into(), |(_, value)| value.clone());
    std::env::split_paths(&search)
        .map(|directory| absolute(directory.join(&name)))
        .find(|path| is_executable(path))
        .ok_or_else(|| unfit("was not found"))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn make_streams(spec: &LaunchSpec) -> Result<Streams> {
    let kinds = [spec.stdin, spec.stdout, spec.stderr];
    let mut streams = Streams { job: [None, None, None], terminal: None, console: Vec::new() };
    if kinds.contains(&StreamKind::Terminal) {
        let (master, slave) = make_terminal(spec)?;
        streams.console.push((StdioRole::Terminal, master));
        streams.terminal = Some(slave);
    }
    let roles = [StdioRole::Stdin, StdioRole::Stdout, StdioRole::Stderr];
    for (index, (kind, role)) in kinds.into_iter().zip(roles).enumerate() {
        let dup = |fd: &OwnedFd| {
            fd.try_clone().map_err(|error| EngineError::system("dup", "a stream", error))
        };
        streams.job[index] = match kind {
            StreamKind::Terminal => streams.terminal.as_ref().map(dup).transpose()?,
            StreamKind::Pipe => {
                let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)
                    .map_err(|errno| EngineError::system("pipe", "a stream", errno))?;
                let (job, launcher) =
                    if role == StdioRole::Stdin { (read, write) } else { (write, read) };
                streams.console.push((role, launcher));
                Some(job)
            }
            StreamKind::WithStdout => streams.job[1].as_ref().map(dup).transpose()?,
            StreamKind::Inherit => None,
        };
    }
    Ok(streams)
}

fn make_terminal(spec: &LaunchSpec) -> Result<(OwnedFd, OwnedFd)> {
    let failed = |error: std::io::Error| EngineError::system("make", "a terminal", error);
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = nix::fcntl::open("/dev/ptmx", flags, nix::sys::stat::Mode::empty())
        .map_err(|errno| failed(errno.into()))?;
    tty::set_locked(master.as_fd(), false).map_err(failed)?;
    let slave = tty::open_peer(master.as_fd(), flags.bits()).map_err(failed)?;
    if let Some(bytes) = &spec.termios {
        tty::set_termios_bytes(slave.as_fd(), bytes).map_err(failed)?;
    }
    if let Some(WindowSize { rows, columns, x_pixels, y_pixels }) = spec.window {
        let size = tty::WindowSize { rows, columns, width: x_pixels, height: y_pixels };
        tty::set_window_size(slave.as_fd(), size).map_err(failed)?;
    }
    Ok((master, slave))
}

/// Gives up the agent's rights for good: exec leaves no capability to a user that is not root and inherits none
/// (capabilities(7)).
fn become_user(user: &UserOrder) -> nix::Result<()> {
    use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups)?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    // The kernel takes them from root that becomes another user, and from nobody else.
    if user.uid != 0 { give_up_all() } else { Ok(()) }
}

/// Runs in the child. Returns only where it fails, with an exit status.
fn become_job(
    path: &CString,
    arguments: &[CString],
    environment: &[CString],
    directory: &Path,
    streams: Streams,
    user: Option<&UserOrder>,
) -> i32 {
    let complain = |what: &str, error: &dyn std::fmt::Display| {
        eprintln!("ckptd: failed to start {}: {what}: {error}", path.to_string_lossy());
    };
    let _ = nix::unistd::setsid();
    if let Some(terminal) = &streams.terminal {
        if let Err(error) = tty::take_controlling(terminal) {
            complain("controlling terminal", &error);
            return NOT_EXECUTABLE;
        }
    }
    for (number, stream) in streams.job.iter().enumerate() {
        let Some(stream) = stream else { continue };
        // SAFETY: takes numbers only; 0 to 2 are this child's own.
        if unsafe { libc::dup2(stream.as_raw_fd(), number as i32) } < 0 {
            complain("streams", &std::io::Error::last_os_error());
            return NOT_EXECUTABLE;
        }
    }
    if let Err(errno) = user.map_or(Ok(()), become_user) {
        complain("user", &errno);
        return NOT_EXECUTABLE;
    }
    if let Err(errno) = hand_on_nothing() {
        complain("inherited capabilities", &errno);
        return NOT_EXECUTABLE;
    }
    if let Err(error) = std::env::set_current_dir(directory) {
        complain(&directory.display().to_string(), &error);
        return NOT_EXECUTABLE;
    }
    if let Err(error) = super::reap::default_signals() {
        complain("signals", &error);
        return NOT_EXECUTABLE;
    }
    // SAFETY: closes everything but the streams; nothing of it is used any more but by execve's copies.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, abi::CLOSE_RANGE_CLOEXEC) };
    let Err(errno) = nix::unistd::execve(path, arguments, environment);
    complain("execve", &errno);
    if errno == nix::errno::Errno::ENOENT { NOT_FOUND } else { NOT_EXECUTABLE }
}
