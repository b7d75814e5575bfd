//! What Prometheus says of metrics, and of the files for it, where its promtool is there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::check;
use crate::cluster::failure;
use crate::job::Failure;

/// Where tests/install puts it.
const INSTALLED: &str = "/var/cache/ckptd-tests/prometheus/promtool";

fn found() -> Option<PathBuf> {
    let is_there = |program: &Path| Command::new(program).arg("--version").output().is_ok();
    [Path::new("promtool"), Path::new(INSTALLED)]
        .into_iter()
        .find(|one| is_there(one))
        .map(Path::to_owned)
}

/// What is served at /metrics has to be read without a complaint, and the rules and the configuration in packaging/, too.
pub(super) fn takes_metrics(text: &str) -> Result<(), Failure> {
    let Some(promtool) = found() else {
        println!("    skipped: metrics are not read by promtool: tests/install installs it");
        return Ok(());
    };
    asked(&promtool, &["check", "metrics"], text)?;
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/prometheus");
    asked(&promtool, &["check", "rules", &format!("{files}/alerts.yml")], "")?;
    let configuration = format!("{files}/prometheus.yml");
    // Without the files that it names.
    asked(&promtool, &["check", "config", "--syntax-only", &configuration], "")
}

fn asked(promtool: &Path, words: &[&str], input: &str) -> Result<(), Failure> {
    let mut command = Command::new(promtool);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut asked = command.spawn().map_err(failure("start promtool"))?;
    if let Some(mut to) = asked.stdin.take() {
        to.write_all(input.as_bytes()).map_err(failure("write to promtool"))?;
    }
    let said = asked.wait_with_output().map_err(failure("hear of promtool"))?;
    let errors = String::from_utf8_lossy(&said.stderr);
    check(said.status.success() && errors.is_empty(), || {
        format!("promtool {}: {}{errors}", words.join(" "), String::from_utf8_lossy(&said.stdout))
    })
}
