//! The harness' hold on the hub.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{KEEP, failure};
use crate::job::Failure;

/// The process that holds the bridge. Dropping it ends the hub, which removes the cluster's files.
pub(super) struct Hub {
    process: Child,
    life: Option<ChildStdin>,
    keep: bool,
}

impl Hub {
    pub(super) fn start(folder: &Path) -> Result<Hub, Failure> {
        let mut command = role("hub")?;
        command.arg(folder);
        let (mut process, mut lines) = start(&mut command)?;
        let life = process.stdin.take();
        expect(&mut lines, "ready")?;
        Ok(Hub { process, life, keep: false })
    }

    /// Its process' id.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn keep(&mut self) {
        self.keep = true;
    }

    /// Runs `ip` or `tc` in the hub's network.
    pub(super) fn network(pid: u32, words: &[&str]) -> Result<(), Failure> {
        let mut command = role("in-hub")?;
        command.arg("--hub").arg(pid.to_string()).arg("--").args(words);
        let output = command.output().map_err(failure("run clusternode"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Failure(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let (Some(mut life), true) = (self.life.take(), self.keep) {
            // A hub that is gone removes nothing either.
            let _ = life.write_all(KEEP.as_bytes());
        }
        let _ = self.process.wait();
    }
}

/// The executable of the roles, beside the one that runs.
pub(super) fn role(name: &str) -> Result<Command, Failure> {
    let own = std::env::current_exe().map_err(failure("find this program"))?;
    let beside = |folder: &Path| folder.join("clusternode");
    let places: [PathBuf; 2] = [
        beside(own.parent().unwrap_or(Path::new("/"))),
        // A test's executable is in deps/.
        beside(own.parent().and_then(Path::parent).unwrap_or(Path::new("/"))),
    ];
    let found = places.iter().find(|path| path.is_file());
    let found = found.ok_or_else(|| {
        Failure("failed to find clusternode: cargo build -p ckptd-tests --bins builds it".into())
    })?;
    let mut command = Command::new(found);
    command.arg(name).process_group(0);
    Ok(command)
}

/// Starts a role whose life hangs on its standard input and that tells of itself.
pub(super) fn start(command: &mut Command) -> Result<(Child, BufReader<ChildStdout>), Failure> {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(failure("start clusternode"))?;
    let out = child.stdout.take().ok_or(Failure("clusternode has no output".into()))?;
    Ok((child, BufReader::new(out)))
}

/// Reads one line, which must begin with `word`; the rest of it.
pub(super) fn expect(lines: &mut BufReader<ChildStdout>, word: &str) -> Result<String, Failure> {
    let mut line = String::new();
    lines.read_line(&mut line).map_err(failure("read from clusternode"))?;
    let rest = line.trim_end().strip_prefix(word).map(|rest| rest.trim().to_owned());
    rest.ok_or_else(|| {
        Failure(format!("a part of the cluster did not start: {line:?} came for \"{word}\""))
    })
}
