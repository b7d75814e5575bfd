//! What ckptd says when it can't do what it was asked, and the exit status that goes with it, as reviewed: see
//! `snapshots/`. `INSTA_UPDATE=always cargo test -p ckptd` writes them anew.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Called one after the other in a folder without jobs.
const WITHOUT_JOBS: &[&[&str]] = &[
    &["status", "fold"],
    &["status", "latest"],
    &["checkpoint", "fold"],
    &["restart", "fold"],
    &["restart", "latest"],
    &["stop", "fold"],
    &["attach", "fold"],
    &["inspect", "fold"],
    &["inspect", "fold@x"],
    &["verify", "fold"],
    &["verify", "fold", "--rehearse"],
    &["gc", "fold"],
    &["rm", "fold"],
    &["export", "fold", "fold.tar.zst"],
    &["import", "fold.tar.zst"],
    &["rsh", "desk", "hostname"],
    &["nodes"],
    &["leave"],
    &["drain", "desk"],
    &["uncordon", "desk"],
    &["token"],
];

/// Wrong by themselves.
const WRONG: &[&[&str]] = &[
    &["run"],
    &["run", "--intreval", "5", "true"],
    &["run", "--interval", "-3", "true"],
    &["run", "--keep", "0", "true"],
    &["run", "--copies", "0", "true"],
    &["run", "--placement", "rack", "true"],
    &["run", "--group", "0", "true"],
    &["run", "--group", "2", "true"],
    &["run", "--external", "maybe", "true"],
    &["run", "--name", "a/b", "true"],
    &["run", "--engine", "criu", "true"],
    &["checkpont", "fold"],
    &["rm"],
    &["export", "fold"],
    &["top", "--every", "soon"],
    &["completions", "csh"],
];

/// The calls as in a terminal, each with what it says and its exit status.
fn told(dir: &Path, calls: &[&[&str]]) -> String {
    let mut text = String::new();
    for call in calls {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ckptd"));
        command.args(*call).env("CKPTD_DIR", dir).env("COLUMNS", "100").current_dir(dir);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.stdout.is_empty(), "{call:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let said = said.replace(&dir.display().to_string(), "DIR");
        let status = output.status.code().unwrap();
        writeln!(text, "$ ckptd {}\n{}\n[{status}]\n", call.join(" "), said.trim_end()).unwrap();
    }
    text
}

fn check(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn without_jobs() {
    let dir = tempfile::tempdir().unwrap();
    check("refused-without-jobs", &told(dir.path(), WITHOUT_JOBS));
}

#[test]
fn wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    check("refused-usage", &told(dir.path(), WRONG));
}
