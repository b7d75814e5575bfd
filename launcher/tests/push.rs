//! android/push.sh, with a script in the place of adb that takes a folder of this machine for the phone.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// What is on the phone below /data/local/tmp is in the folder PHONE; what adb was told, beside it.
const ADB: &str = r#"#!/bin/sh
echo "$*" >> "$PHONE.said"
[ "$1" != -s ] || { [ "$2" = 123ABC ] || { echo "error: device '$2' not found" >&2; exit 1; }; shift 2; }
here() { printf '%s' "$1" | sed "s#/data/local/tmp#$PHONE#g"; }
case $1 in
get-state) echo device ;;
get-serialno) echo 123ABC ;;
push) cp "$2" "$(here "$3")" ;;
shell)
    shift
    case "$*" in
    'getprop ro.product.cpu.abi') echo x86_64 ;;
    'getprop ro.product.model') echo 'Pixel 9 (Pro)' ;;
    'getprop '*) echo 15 ;;
    *) exec sh -c "$(here "$*")" ;;
    esac ;;
*) echo "adb: unknown command $1" >&2; exit 1 ;;
esac
"#;

struct Phone {
    folder: tempfile::TempDir,
    coordinator: std::process::Child,
}

impl Phone {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::create_dir(path.join("phone")).unwrap();
        std::fs::create_dir(path.join("bin")).unwrap();
        std::fs::write(path.join("bin/adb"), ADB).unwrap();
        std::fs::set_permissions(path.join("bin/adb"), PermissionsExt::from_mode(0o755)).unwrap();
        let coordinator = Command::new(env!("CARGO_BIN_EXE_ckptd"))
            .args(["coordinator", "--listen", "127.0.0.1:0", "--dir"])
            .arg(path.join("head"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let phone = Self { folder, coordinator };
        let end = Instant::now() + LIMIT;
        while !phone.ask(&["nodes"]).status.success() {
            assert!(Instant::now() < end, "the coordinator does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        phone
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ask(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ckptd"));
        command.args(words).arg("--dir").arg(self.path("head")).output().unwrap()
    }

    fn token(&self) -> String {
        String::from_utf8(self.ask(&["token"]).stdout).unwrap().trim().to_owned()
    }

    fn push(&self, words: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../android/push.sh");
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        Command::new(script)
            .args(["--program", env!("CARGO_BIN_EXE_ckptd")])
            .args(words)
            .env("PATH", path)
            .env("PHONE", self.path("phone"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The states of the members, by their names.
    fn members(&self) -> Vec<(String, String)> {
        let nodes: Value = serde_json::from_slice(&self.ask(&["nodes", "--json"]).stdout).unwrap();
        let word = |node: &Value, key: &str| node[key].as_str().unwrap().to_owned();
        nodes.as_array().unwrap().iter().map(|n| (word(n, "name"), word(n, "state"))).collect()
    }

    fn agent(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.path("phone/ckptd/agent.pid")).ok()?;
        Some(Pid::from_raw(text.trim().parse().unwrap()))
    }
}

impl Drop for Phone {
    fn drop(&mut self) {
        if let Some(agent) = self.agent() {
            let _ = kill(agent, Signal::SIGKILL);
        }
        let _ = self.coordinator.kill();
        let _ = self.coordinator.wait();
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_phone_joins_and_is_renewed() {
    let phone = Phone::new();
    let token = phone.token();
    let pushed = phone.push(&["--serial", "123ABC", &token, "--", "--speed", "1", "--slots", "3"]);
    assert!(pushed.status.success(), "{}", errors(&pushed));
    let told = String::from_utf8_lossy(&pushed.stdout);
    assert!(told.contains("pidfd_getfd") && told.contains("on this machine"), "doctor: {told}");
    // Its name is made of its model and serial number.
    let here = [("pixel-9-pro-3abc".to_owned(), "alive".to_owned())];
    assert_eq!(phone.members(), here, "{}", errors(&pushed));
    let slots: Value = serde_json::from_slice(&phone.ask(&["nodes", "--json"]).stdout).unwrap();
    assert_eq!(slots[0]["slots"], 3);
    let folder = phone.path("phone/ckptd/state");
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);

    // No command line has the token, nor does a file keep it.
    let said = std::fs::read_to_string(phone.path("phone.said")).unwrap();
    assert!(said.contains("shell getprop") && !said.contains(&token), "{said}");
    let log = std::fs::read_to_string(phone.path("phone/ckptd/agent.log")).unwrap();
    assert!(!log.contains("could read the token"), "{log}");
    assert!(!folder.join("join").exists());

    // Once more: the agent that runs leaves, and another takes its place, with no new token.
    let before = phone.agent();
    let again = phone.push(&[&token, "--", "--speed", "1"]);
    assert!(again.status.success(), "{}", errors(&again));
    assert!(errors(&again).contains("told to leave"), "{}", errors(&again));
    assert_eq!(phone.members(), here);
    assert_ne!(phone.agent(), before);
}

#[test]
fn what_fails_is_told_in_one_line() {
    let phone = Phone::new();
    let failed = |words: &[&str], text: &str| {
        let pushed = phone.push(words);
        let errors = errors(&pushed);
        assert_eq!(pushed.status.code(), Some(1), "{words:?}: {errors}");
        assert!(errors.lines().last().unwrap_or_default().contains(text), "{words:?}: {errors}");
    };
    failed(
        &["--serial", "none", "ckptd1.abc"],
        "failed: reach the phone: error: device 'none' not found",
    );
    failed(
        &["--program", "/not/there", "ckptd1.abc"],
        "failed: find /not/there: build it with android/build.sh x86_64",
    );
    failed(&["$(touch x)"], "failed: use the token");
    failed(&["--name", "pixel", "ckptd1.abc"], "failed: join pixel to the cluster");
    assert!(phone.members().is_empty());
    let usage = phone.push(&[]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(errors(&usage).contains("android/push.sh [OPTION]... TOKEN"), "{}", errors(&usage));
}
