//! Signals to the launcher.

use protocol::task;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;

/// Those that mean something to the launcher.
const OWN: [i32; 7] = [
    nix::libc::SIGINT,
    nix::libc::SIGQUIT,
    nix::libc::SIGTERM,
    nix::libc::SIGHUP,
    nix::libc::SIGTSTP,
    nix::libc::SIGCONT,
    nix::libc::SIGWINCH,
];

/// Those that would end the launcher, and the job with it, and mean nothing to it: they are for the job.
///
/// Not among them are the marks of a fault of the launcher's own (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP).
const FOREIGN: [i32; 10] = [
    nix::libc::SIGUSR1,
    nix::libc::SIGUSR2,
    nix::libc::SIGALRM,
    nix::libc::SIGVTALRM,
    nix::libc::SIGPROF,
    nix::libc::SIGXCPU,
    nix::libc::SIGIO,
    nix::libc::SIGPWR,
    nix::libc::SIGSTKFLT,
    nix::libc::SIGABRT,
];

/// Whether a caught signal is for the job alone, which decides what it means.
pub fn is_foreign(signal: i32) -> bool {
    FOREIGN.contains(&signal) || real_time().contains(&signal)
}

/// Without those that the C library keeps to itself.
fn real_time() -> std::ops::RangeInclusive<i32> {
    nix::libc::SIGRTMIN()..=nix::libc::SIGRTMAX()
}

/// Sends each caught signal's number. A signal that the launcher was started with as ignored (nohup, or a shell's
/// background) stays so, but for one that the user has `asked` to have watched for: a script that ignores it to survive it
/// hands that on to what it starts.
///
/// # Errors
/// Where a handler can't be installed.
pub fn watch(sender: &UnboundedSender<i32>, asked: Option<i32>) -> io::Result<()> {
    let ignored = own_set("SigIgn:")?;
    for number in OWN.into_iter().chain(FOREIGN).chain(real_time()) {
        if has(ignored, number) && asked != Some(number) {
            continue;
        }
        let mut stream = signal(SignalKind::from_raw(number))?;
        let sender = sender.clone();
        task::spawn(async move {
            while stream.recv().await.is_some() && sender.send(number).is_ok() {}
        });
    }
    Ok(())
}

/// Whether this process has a handler for a signal, as it has once it was watched for.
pub fn is_caught(signal: i32) -> bool {
    own_set("SigCgt:").is_ok_and(|caught| has(caught, signal))
}

/// Whether this process ignores a signal, as one does that was started by nohup.
pub fn is_ignored(signal: i32) -> bool {
    own_set("SigIgn:").is_ok_and(|ignored| has(ignored, signal))
}

fn own_set(name: &str) -> io::Result<u64> {
    Ok(set(&std::fs::read_to_string("/proc/self/status")?, name))
}

fn has(set: u64, signal: i32) -> bool {
    set & (1 << (signal - 1)) != 0
}

/// A set of signals in the text of /proc/PID/status (proc_pid_status(5)).
fn set(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_for_the_job() {
        for own in super::OWN {
            assert!(!super::is_foreign(own), "{own}");
        }
        assert!(super::is_foreign(nix::libc::SIGUSR1) && super::is_foreign(nix::libc::SIGRTMAX()));
    }

    #[test]
    fn the_sets_of_signals() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t2\n";
        assert_eq!(super::set(status, "SigIgn:"), 0x1001);
        assert_eq!(super::set("", "SigIgn:"), 0);
        let caught = super::set(status, "SigCgt:");
        assert!(super::has(caught, nix::libc::SIGINT) && !super::has(caught, nix::libc::SIGHUP));
    }
}
