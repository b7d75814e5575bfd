//! A machine from inside: who makes it, and its first process.

use super::machines::{APART, COMMON_BITS, DEVICE, TOKEN, UP, WIRED};
use super::{Account, account_option, ckptd, mount_proc, own};
use crate::EXIT_FAILED;
use ckpt_engine::sys::loopback;
use ckpt_engine::sys::rtnetlink::Network;
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::sethostname;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;

/// How many processes of the job a machine takes.
const SLOTS: &str = "2";
/// The agent's log in its folder.
pub const LOG: &str = "agent.log";

/// What could not be done, and why.
fn failed<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> io::Error {
    move |error| io::Error::other(format!("{what}: {}", error.into()))
}

/// Tells whoever has started this, line by line.
fn tell(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn status(done: io::Result<()>) -> u8 {
    match done {
        Ok(()) => 0,
        Err(error) => {
            // Nobody may be there to read it.
            let _ = tell(&error.to_string());
            EXIT_FAILED
        }
    }
}

/// Makes a machine, and waits for its end; the exit status.
pub fn machine(name: &str, address: Ipv4Addr, folder: &Path, account: Account) -> u8 {
    status(make(name, address, folder, account))
}

fn make(name: &str, address: Ipv4Addr, folder: &Path, account: Account) -> io::Result<()> {
    let flags = CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC;
    unshare(flags).map_err(failed("make namespaces"))?;
    tell(APART)?;
    let mut word = String::new();
    io::stdin().lock().take(WIRED.len() as u64).read_to_string(&mut word)?;
    if word != WIRED {
        return Err(io::Error::other("it was not connected"));
    }
    sethostname(name).map_err(failed("set the host name"))?;
    loopback::bring_up().map_err(failed("bring the loopback up"))?;
    Network::open()
        .and_then(|mut network| network.set_address(DEVICE, address, COMMON_BITS))
        .map_err(failed("set the address"))?;
    let mut command = own("first").map_err(io::Error::other)?;
    // Only now: the first child from here on is process 1 there.
    unshare(CloneFlags::CLONE_NEWPID).map_err(failed("make a PID namespace"))?;
    command.arg(folder).args(account_option(account));
    // It writes to a pipe of its own, or its word could come before its number.
    let first = command.stdout(Stdio::piped()).spawn();
    let mut first = first.map_err(failed("start its first process"))?;
    let mut said = String::new();
    if let Some(out) = first.stdout.take() {
        BufReader::new(out).read_line(&mut said)?;
    }
    match said.trim_end() {
        UP => tell(&format!("{UP} {}", first.id()))?,
        other => return Err(io::Error::other(other.to_owned())),
    }
    first.wait().map(drop)
}

/// Is the first process of a machine: starts the agent, and buries orphans.
pub fn first(folder: &Path, account: Account) -> u8 {
    let agent = match start_agent(folder, account) {
        Ok(agent) => agent,
        Err(error) => return status(Err(error)),
    };
    if tell(UP).is_err() {
        return EXIT_FAILED;
    }
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL)) {
            // It was refused, or has failed: a machine without it is none.
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _))
                if pid.as_raw() == agent =>
            {
                return EXIT_FAILED;
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return EXIT_FAILED,
        }
    }
}

fn start_agent(folder: &Path, account: Account) -> io::Result<i32> {
    mount_proc().map_err(failed("mount /proc"))?;
    let mut command = ckptd().map_err(io::Error::other)?;
    if let Some((user, group)) = account {
        become_user(user, group).map_err(failed("become an ordinary user"))?;
    }
    let token = folder.with_file_name(TOKEN);
    let log = File::create(folder.join(LOG)).map_err(failed("write its log"))?;
    let name = nix::unistd::gethostname().map_err(failed("find its name"))?;
    command.arg("--dir").arg(folder).args(["agent", "--slots", SLOTS, "--speed", "1"]);
    command.arg("--join-file").arg(token).arg("--name").arg(name);
    if account.is_none() {
        command.arg("--allow-root");
    }
    command.current_dir("/").stdout(log.try_clone()?).stderr(log);
    let agent = command.spawn().map_err(failed("start its agent"))?;
    i32::try_from(agent.id()).map_err(io::Error::other)
}

/// In a user namespace of its own, where root of the one around it has the number that the user has outside: so its agent is
/// an ordinary user's, with no rights at all.
fn become_user(user: u32, group: u32) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWUSER)?;
    fs::write("/proc/self/uid_map", format!("{user} 0 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} 0 1"))
}
