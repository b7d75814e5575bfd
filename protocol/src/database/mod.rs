//! What the machine knows of users, groups and hosts.
//!
//! The C library's own look-up (getpwuid(3), getaddrinfo(3)) loads the modules that nsswitch.conf(5) names into the
//! process that asks. A static executable cannot take them: glibc's manual says so ("Static Executables and NSS"), and
//! systemd's module ends such a process by a segmentation fault. So the files are read here, and whoever they do
//! not know is asked for by getent(1) and id(1), which come with every C library that has modules. Where they are not
//! (Android), the files are all there is.

pub mod hosts;
pub mod users;

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

/// How long a directory service may take before a name counts as unknown.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer, in bytes: a user may be in tens of thousands of groups.
const LONGEST: usize = 1 << 20;

/// Output of a command that has succeeded; [`io::ErrorKind::NotFound`] where there is no such command.
fn ask(program: &str, arguments: &[&str]) -> io::Result<String> {
    ask_within(PATIENCE, program, arguments)
}

fn ask_within(patience: Duration, program: &str, arguments: &[&str]) -> io::Result<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let answer = match child.stdout.take() {
        Some(stdout) => read(stdout, Instant::now() + patience),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    };
    if answer.is_err() {
        // It may have ended by itself.
        let _ = child.kill();
    }
    match child.wait()?.success() {
        true => answer,
        false => Err(answer.err().unwrap_or_else(|| io::Error::other("it knows nothing"))),
    }
}

fn read(mut from: impl Read + AsFd, deadline: Instant) -> io::Result<String> {
    let mut answer = Vec::new();
    let mut room = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Err(nix::Error::EINTR) => continue,
            ready => ready?,
        };
        match from.read(&mut room)? {
            0 => break,
            count => answer.extend_from_slice(&room[..count]),
        }
        if answer.len() > LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    String::from_utf8(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_does_not_answer_is_waited_for_within_limits() {
        let began = Instant::now();
        let patience = Duration::from_millis(100);
        let error = ask_within(patience, "sleep", &["60"]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_fails_or_never_ends_is_no_answer() {
        assert_eq!(ask("false", &[]).unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(ask("/no/such/program", &[]).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(ask("yes", &[]).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(ask("echo", &["seen"]).unwrap(), "seen\n");
    }
}
