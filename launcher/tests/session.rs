//! The whole command, as a process of its own, with an agent that runs real processes and
//! pretends to checkpoint them. This file is both: with CKPTD_DOUBLE set it is the command.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

mod double;
#[path = "../../tests/harness.rs"]
mod harness;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

fn ckptd(dir: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(own);
    command.env("CKPTD_DOUBLE", "1").env("CKPTD_DIR", dir).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    ckptd(dir).args(arguments).output().unwrap()
}

/// Waits until a condition holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn json(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = run(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn running(dir: &Path, arguments: &[&str]) -> Child {
    let child = ckptd(dir)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the job runs", || dir.join("job-1/socket").exists());
    child
}

fn streams_and_status(dir: &Path) {
    let output = run(dir, &["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n".into(), "err\n".into()));
    let log = std::fs::read_to_string(dir.join("sh-1/log")).unwrap();
    assert!(log.contains("out\n") && log.contains("err\n"), "{log}");
    assert!(log.ends_with("[ckptd: ended with status 7]\n"), "{log}");
    let output = run(dir, &["run", "sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137));
    let output = run(dir, &["run", "/nowhere/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).starts_with("ckptd: failed to run /nowhere/program: "));
    let listed = json(dir, &["ls", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 2, "a slip leaves no job: {listed}");
    assert_eq!(listed[0]["state"], "ended");
}

fn input_and_its_end(dir: &Path) {
    let mut child = running(dir, &["run", "--name", "job", "sort"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"b\na\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), ("a\nb\n".into(), Some(0)));
}

fn much_output_arrives_whole(dir: &Path) {
    let output = run(dir, &["run", "sh", "-c", "seq 300000"]);
    let lines = text(&output.stdout).lines().count();
    assert_eq!((lines, output.status.code()), (300_000, Some(0)));
}

fn a_reader_that_goes_away_ends_the_writer(dir: &Path) {
    let mut child = running(dir, &["run", "--name", "job", "yes"]);
    let mut out = child.stdout.take().unwrap();
    let mut some = [0; 100];
    out.read_exact(&mut some).unwrap();
    drop(out);
    until("yes has ended", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

fn checkpoint_stop_restart(dir: &Path) {
    let script = "echo started; while :; do sleep 0.05; done";
    let child =
        running(dir, &["run", "-v", "--interval", "0", "--name", "job", "sh", "-c", script]);
    until("it writes", || {
        std::fs::read_to_string(dir.join("job-1/log")).is_ok_and(|log| log.contains("started"))
    });
    let output = run(dir, &["checkpoint", "job"]);
    assert_eq!(text(&output.stdout), "1\n", "{}", text(&output.stderr));
    let status = json(dir, &["status", "job", "--json"]);
    assert_eq!(status["state"], "running");
    assert_eq!(status["checkpoints"][0]["log_length"], 8);
    let refused = run(dir, &["rm", "job"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("it is running"));
    let refused = run(dir, &["restart", "latest"]);
    assert!(text(&refused.stderr).contains("it is running"), "{}", text(&refused.stderr));
    let stopped = run(dir, &["stop", "job", "--checkpoint"]);
    assert!(stopped.status.success());
    assert_eq!(text(&stopped.stderr), "ckptd: job job stopped; resume with: ckptd restart job\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    let said = text(&output.stderr);
    assert!(said.contains("ckptd: checkpoint 1 committed: 1 process, "), "{said}");
    assert_eq!(json(dir, &["status", "job", "--json"])["state"], "interrupted");
    // The log is put back to what it was at checkpoint 1: one line.
    let output = run(dir, &["restart", "job", "--checkpoint", "1"]);
    assert_eq!(text(&output.stdout), "restored 1\n", "{}", text(&output.stderr));
    let log = std::fs::read_to_string(dir.join("job-1/log")).unwrap();
    assert!(
        log.starts_with("started\n[ckptd: restarted from checkpoint 1]\nrestored 1\n"),
        "{log}"
    );
    assert!(dir.join("job-1/log.tail-1").exists());
    // It ended by itself: not restarted again unasked.
    let output = run(dir, &["restart", "job"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("ckptd restart job --checkpoint 2"));
    assert!(run(dir, &["rm", "job"]).status.success());
    assert!(!dir.join("job-1").exists());
}

fn an_interrupt_ends_in_order(dir: &Path) {
    let mut child = running(dir, &["run", "--interval", "0", "--name", "job", "sleep", "100"]);
    assert!(run(dir, &["checkpoint", "job"]).status.success());
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(said, "ckptd: job job interrupted; resume with: ckptd restart job\n");
}

fn intervals_and_keep(dir: &Path) {
    let mut child =
        running(dir, &["run", "--interval", "0.1", "--keep", "3", "--name", "job", "sleep", "100"]);
    let kept = |status: &serde_json::Value| status["checkpoints"].as_array().unwrap().len();
    until("checkpoint 6 and two more", || {
        let status = json(dir, &["status", "job", "--json"]);
        kept(&status) == 3 && status["checkpoints"][2]["checkpoint"].as_u64() >= Some(6)
    });
    // The launcher is killed: the lock goes with it, and what is committed stands.
    child.kill().unwrap();
    child.wait().unwrap();
    let status = json(dir, &["status", "job", "--json"]);
    assert_eq!(status["state"], "interrupted");
    // The oldest goes after the newest is committed: it may have died in between.
    assert!((3..=4).contains(&kept(&status)), "{status}");
}

type Test = fn(&Path);

fn main() -> ExitCode {
    if std::env::var_os("CKPTD_DOUBLE").is_some() {
        return ckptd::main_with(double::start);
    }
    let tests: [(&str, Test); 7] = [
        ("streams_and_status", streams_and_status),
        ("input_and_its_end", input_and_its_end),
        ("much_output_arrives_whole", much_output_arrives_whole),
        ("a_reader_that_goes_away_ends_the_writer", a_reader_that_goes_away_ends_the_writer),
        ("checkpoint_stop_restart", checkpoint_stop_restart),
        ("an_interrupt_ends_in_order", an_interrupt_ends_in_order),
        ("intervals_and_keep", intervals_and_keep),
    ];
    let asked = harness::Asked::new(&std::env::args().skip(1).collect::<Vec<_>>());
    if asked.lists(tests.iter().map(|(name, _)| *name)) {
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, test) in tests.into_iter().filter(|(name, _)| asked.wants(name)) {
        let dir = tempfile::tempdir().unwrap();
        let result = std::panic::catch_unwind(|| test(dir.path()));
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        failed += u32::from(result.is_err());
    }
    ExitCode::from(u8::from(failed > 0))
}
