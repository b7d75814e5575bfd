//! Numbered faults: tests kill the whole program at a named point of a checkpoint.

use nix::sys::signal::{Signal, kill};

/// The environment variable that names the point.
const VARIABLE: &str = "CKPTD_FAULT";

/// Kills this program (SIGKILL) where the environment asks for it at this point.
pub fn point(name: &str) {
    if std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == name) {
        let _ = kill(nix::unistd::getpid(), Signal::SIGKILL);
    }
}
