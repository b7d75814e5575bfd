//! Numbered faults: tests stop or kill the program at a named step of a checkpoint, a move or a restart.
//!
//! `CKPTD_FAULT=POINT` kills the whole program there. `CKPTD_FAULT_DIR=DIR` lets it stand there while
//! a test does something to its machine, its link or the coordinator: a point is armed by a file of its name
//! in DIR; who comes to it renames the file to POINT.reached and goes on once that is gone.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

/// The environment variable that names the point.
const VARIABLE: &str = "CKPTD_FAULT";
/// The one that names the folder.
pub const FOLDER: &str = "CKPTD_FAULT_DIR";
/// A test that has died arms nothing and frees nobody.
const LONGEST: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);

/// Kills this program (SIGKILL), or lets it wait, where the environment asks for it at this point.
pub fn point(name: &str) {
    if std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == name) {
        let _ = kill(nix::unistd::getpid(), Signal::SIGKILL);
    }
    if let Some(folder) = std::env::var_os(FOLDER) {
        stand(Path::new(&folder), name);
    }
}

fn stand(folder: &Path, name: &str) {
    let reached = folder.join(format!("{name}.reached"));
    if std::fs::rename(folder.join(name), &reached).is_err() {
        return;
    }
    tracing::info!("stands at {name}");
    let until = Instant::now() + LONGEST;
    while reached.exists() && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_to_an_armed_point_stands_until_it_is_freed() {
        let folder = tempfile::tempdir().unwrap();
        stand(folder.path(), "freeze");
        std::fs::write(folder.path().join("freeze"), "").unwrap();
        std::thread::scope(|scope| {
            let standing = scope.spawn(|| stand(folder.path(), "freeze"));
            let reached = folder.path().join("freeze.reached");
            while !reached.exists() {
                std::thread::sleep(LOOK);
            }
            assert!(!standing.is_finished());
            std::fs::remove_file(reached).unwrap();
            standing.join().unwrap();
        });
        // Armed once is once.
        stand(folder.path(), "freeze");
    }
}
