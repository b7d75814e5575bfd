//! A command that runs, in a process group of its own. Whoever looks at it never waits for it.

use super::heard::Heard;
use super::hook::Target;
use super::hook_variables;
use super::queue::{Call, How};
use crate::INNER_CALL;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, pipe2, read, write};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The shell, where it is as everywhere.
const SHELL: &str = "/bin/sh";

/// Pieces of output that are taken in one look: somebody else has to be looked at, too.
const MOST_PIECES: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Called {
    child: Child,
    /// What it reads, as far as it has not been taken yet.
    input: Option<(ChildStdin, Vec<u8>)>,
    output: OwnedFd,
    heard: Heard,
}

impl Called {
    /// Calls a command, about the job of that name.
    ///
    /// # Errors
    /// Where there can't be another process, or a pipe to it.
    pub fn start(call: &Call, job: &str) -> io::Result<Self> {
        let (output, told) = pipe2(OFlag::O_CLOEXEC)?;
        never_wait(&output)?;
        let mut command = program(&call.target)?;
        command.process_group(0);
        for name in hook_variables().take_while(|name| std::env::var_os(name).is_some()) {
            command.env_remove(name);
        }
        command.env("CKPTD_EVENT", call.kind.name()).env("CKPTD_JOB", job);
        command.stdin(Stdio::piped()).stdout(told.try_clone()?).stderr(told);
        let mut child = command.spawn()?;
        let input = child.stdin.take().map(|input| (input, call.line.clone().into_bytes()));
        let mut called = Self { child, input, output, heard: Heard::default() };
        if let Some((input, _)) = &called.input {
            // It would be written to as long as it takes.
            if let Err(error) = never_wait(input) {
                called.signal(Signal::SIGKILL);
                let _ = called.child.wait();
                return Err(error);
            }
        }
        Ok(called)
    }

    /// Passes on what can be; how it has ended, if it has.
    ///
    /// # Errors
    /// Where that can't be told.
    pub fn look(&mut self) -> io::Result<Option<How>> {
        self.pass_input();
        self.hear();
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid()), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        // What it has left in the background. Until it is waited for, its number is nobody else's.
        self.signal(Signal::SIGKILL);
        self.hear();
        let status = self.child.wait()?;
        Ok(Some(match status.signal() {
            Some(signal) => How::Signalled(signal),
            None => How::Exited(status.code().unwrap_or_default()),
        }))
    }

    /// Sends a signal to it and all that it has started, unless these have left its group.
    pub fn signal(&self, signal: Signal) {
        let _ = killpg(self.pid(), signal);
    }

    /// What it has said.
    pub fn lines(&self) -> Vec<String> {
        self.heard.lines()
    }

    fn pid(&self) -> Pid {
        // Numbers of processes fit (pid_max, proc_sys_kernel(5)); what does not is nobody's.
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    /// What it does not take is left out: most commands read nothing.
    fn pass_input(&mut self) {
        let Some((input, left)) = &mut self.input else { return };
        while !left.is_empty() {
            match write(input.as_fd(), left) {
                Ok(written) => drop(left.drain(..written)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => break,
            }
        }
        self.input = None;
    }

    fn hear(&mut self) {
        let mut buffer = [0; 4096];
        for _ in 0..MOST_PIECES {
            match read(&self.output, &mut buffer) {
                Ok(length @ 1..) => self.heard.add(buffer.get(..length).unwrap_or_default()),
                Err(Errno::EINTR) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }
}

/// What is run for a target.
fn program(target: &Target) -> io::Result<Command> {
    match target {
        Target::Command(text) => {
            let shell = if Path::new(SHELL).exists() { SHELL } else { "sh" };
            let mut command = Command::new(shell);
            command.arg("-c").arg(text).env_remove(INNER_CALL);
            Ok(command)
        }
        #[cfg(feature = "webhooks")]
        Target::Address(address) => {
            // The very executable, also where another version was installed meanwhile.
            let mut command = Command::new("/proc/self/exe");
            command.arg(super::webhook::COMMAND).env(super::webhook::ADDRESS, address);
            command.env(INNER_CALL, "1");
            Ok(command)
        }
        // None is made there.
        #[cfg(not(feature = "webhooks"))]
        Target::Address(_) => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// Has reads and writes of a pipe's end return at once.
pub fn never_wait(pipe: &impl AsFd) -> io::Result<()> {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::hook::Kind;
    use super::*;
    use std::time::{Duration, Instant};

    fn call(command: &str, line: &str) -> Called {
        let (target, line) = (Target::Command(command.to_owned()), line.to_owned());
        Called::start(&Call { kind: Kind::Lost, target, line }, "fold").unwrap()
    }

    fn end(called: &mut Called) -> How {
        let since = Instant::now();
        loop {
            if let Some(how) = called.look().unwrap() {
                return how;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn it_hears_of_the_event_and_is_heard() {
        let mut called = call("cat; echo $CKPTD_EVENT $CKPTD_JOB >&2; exit 3", "{}\n");
        assert_eq!(end(&mut called), How::Exited(3));
        assert_eq!(called.lines(), ["{}", "lost fold"]);
    }

    #[test]
    fn whoever_reads_nothing_or_says_too_much_ends_as_well() {
        let long = "x".repeat(1 << 20);
        assert_eq!(end(&mut call("exit 0", &long)), How::Exited(0));
        let mut called = call("head -c 10000000 /dev/zero; cat", &long);
        assert_eq!(end(&mut called), How::Exited(0));
        assert!(called.lines().last().unwrap().contains("left out"));
    }

    #[test]
    fn what_it_leaves_behind_goes_with_it() {
        let mut called = call("sleep 1000 & echo $!", "");
        assert_eq!(end(&mut called), How::Exited(0));
        let left: i32 = called.lines()[0].parse().unwrap();
        let since = Instant::now();
        let stat = || std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
        while !stat().is_empty() && !stat().contains(") Z ") {
            assert!(since.elapsed() < Duration::from_secs(20), "it is there still");
        }
        let mut called = call("trap 'exit 5' TERM; echo on; while :; do sleep 0.01; done", "");
        while called.heard.lines().is_empty() {
            assert_eq!(called.look().unwrap(), None);
        }
        called.signal(Signal::SIGTERM);
        assert_eq!(end(&mut called), How::Exited(5));
    }
}
