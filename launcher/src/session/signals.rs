//! Signals to the launcher.

use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;

/// Those that are caught, unless the launcher was started with them ignored (nohup, or a shell's
/// background): then they stay so.
const CAUGHT: [i32; 7] = [
    nix::libc::SIGINT,
    nix::libc::SIGQUIT,
    nix::libc::SIGTERM,
    nix::libc::SIGHUP,
    nix::libc::SIGTSTP,
    nix::libc::SIGCONT,
    nix::libc::SIGWINCH,
];

/// Sends each caught signal's number.
///
/// # Errors
/// Where a handler can't be installed.
pub fn watch(sender: &UnboundedSender<i32>) -> io::Result<()> {
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status")?);
    for number in CAUGHT {
        if ignored & (1 << (number - 1)) != 0 {
            continue;
        }
        let mut stream = signal(SignalKind::from_raw(number))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && sender.send(number).is_ok() {}
        });
    }
    Ok(())
}

/// The set of ignored signals in the text of /proc/PID/status (proc_pid_status(5)).
fn ignored(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_set_of_ignored_signals() {
        assert_eq!(super::ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), 0x1001);
        assert_eq!(super::ignored(""), 0);
    }
}
