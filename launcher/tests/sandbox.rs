//! ckptd in a sandbox like that of Android's apps: calls that kill are found out, told of, and made nowhere.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// An executable, and the C library in it.
struct Program {
    path: PathBuf,
    libc: &'static str,
}

/// The one under test, and the one for phones where android/build.sh has made it.
fn programs(folder: &Path) -> Vec<Program> {
    let phone = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/android/x86_64/ckptd");
    let found = [(env!("CARGO_BIN_EXE_ckptd").into(), "glibc"), (phone, "musl")];
    let mut programs = Vec::new();
    for (path, libc) in found.into_iter().filter(|(path, _): &(PathBuf, _)| path.is_file()) {
        // Where every account may execute it.
        let copy = folder.join(libc);
        std::fs::copy(path, &copy).unwrap();
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
        programs.push(Program { path: copy, libc });
    }
    programs
}

/// A folder that everybody may write in, with the sandbox; none without a C compiler.
fn stage() -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let sandbox = folder.path().join("sandbox");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sandbox/sandbox.c");
    let built = Command::new("cc")
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .arg(&sandbox)
        .arg(source)
        .status();
    match built {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            eprintln!("skipped: there is no C compiler: {error}; tests/install installs it");
            return None;
        }
    }
    Some((folder, sandbox))
}

fn sandboxed(sandbox: &Path, android: u32, program: &Program, home: &Path) -> Command {
    let mut command = Command::new(sandbox);
    command.arg(android.to_string()).arg(program.libc).arg(&program.path);
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").current_dir(home);
    command.stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap()
}

#[test]
fn doctor_survives_what_it_tries() {
    let Some((folder, sandbox)) = stage() else { return };
    for program in programs(folder.path()) {
        for android in [11, 13, 15] {
            let output = sandboxed(&sandbox, android, &program, folder.path())
                .args(["doctor", "--json"])
                .output()
                .unwrap();
            // It ends by itself, and says that no job can be run: there are namespaces, which can't be made.
            assert_eq!(output.status.code(), Some(1), "Android {android}: {}", text(&output));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let found = |name: &str| check(&report, name)["found"].as_str().unwrap().to_owned();
            let mut forbidden = vec!["kcmp"];
            forbidden.extend((android < 12).then_some("pidfd_getfd"));
            forbidden.extend((android < 15).then_some("clone3"));
            forbidden.extend(
                (program.libc == "musl")
                    .then_some(["rseq", "set_robust_list"])
                    .into_iter()
                    .flatten(),
            );
            forbidden.push("get_robust_list");
            forbidden.extend((android < 13).then_some("close_range"));
            assert_eq!(
                found("sandbox"),
                format!("forbids {}", forbidden.join(", ")),
                "Android {android}"
            );
            assert!(found("kcmp").contains("SIGSYS"), "{}", found("kcmp"));
            assert_eq!(check(&report, "kcmp")["required"], false);
            assert_eq!(found("pidfd_getfd") == "works", android >= 12, "{}", found("pidfd_getfd"));
            assert_eq!(check(&report, "seccomp filter")["required"], false);
            assert_eq!(check(&report, "sock_diag tcp")["state"], "limited");
            for there in ["ptrace", "process_vm_readv"] {
                assert_eq!(found(there), "works", "Android {android}: {there}");
            }
            for absent in ["namespaces", "userfaultfd"] {
                assert_ne!(found(absent), "works", "Android {android}: {absent}");
            }
        }
    }
}

/// What a job of an app does: checkpointed, killed and restarted three times, with other numbers each time.
#[test]
fn a_job_goes_on_within() {
    let Some((folder, sandbox)) = stage() else { return };
    // The job's own programs are this machine's: those of the GNU C library, which ask before they do without clone3.
    let Some(program) = programs(folder.path()).into_iter().find(|p| p.libc == "glibc") else {
        return;
    };
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o777)).unwrap();
    let ckptd = |words: &[&str]| {
        let mut command = sandboxed(&sandbox, 15, &program, &home);
        command.env("CKPTD_NAMESPACES", "none").env("CKPTD_NUMBERS", "new");
        command.env("CKPTD_DIR", home.join("state")).args(words);
        command
    };
    let script = "n=0; while [ ! -e go ]; do n=$((n + 1)); read -t 0.05 _ <>fifo; done; \
                  [ $n -gt 0 ] && echo it goes on to the end";
    nix::unistd::mkfifo(&home.join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o666))
        .unwrap();
    let words = ["run", "--interval", "0", "--name", "job", "--", "bash", "-c", script];
    let errors = || std::fs::read_to_string(home.join("errors")).unwrap_or_default();
    let start = |words: &[&str]| {
        let log = std::fs::File::create(home.join("errors")).unwrap();
        Killed(ckptd(words).stdout(Stdio::piped()).stderr(log).spawn().unwrap())
    };
    let mut job = start(&words);
    for generation in 1..=3 {
        until("the job is checkpointed", || {
            assert!(job.0.try_wait().unwrap().is_none(), "{}", errors());
            ckptd(&["checkpoint", "job"]).output().unwrap().status.success()
        });
        drop(job);
        job = start(&["restart", "job"]);
        until(&format!("generation {generation} runs"), || {
            assert!(job.0.try_wait().unwrap().is_none(), "{}", errors());
            let status = ckptd(&["status", "job", "--json"]).output().unwrap();
            serde_json::from_slice(&status.stdout).is_ok_and(|status: Value| {
                status["state"] == "running" && status["live"].is_object()
            })
        });
    }
    std::fs::write(home.join("go"), "").unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut job.0.stdout.take().unwrap(), &mut said).unwrap();
    let status = job.0.wait().unwrap();
    assert!(status.success(), "{status}: {}", errors());
    assert!(said.contains("it goes on to the end"), "{said}");
}

struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_agent_is_a_member_from_within() {
    let Some((folder, sandbox)) = stage() else { return };
    let ckptd = env!("CARGO_BIN_EXE_ckptd");
    let head = folder.path().join("head");
    let log = std::fs::File::create(folder.path().join("coordinator")).unwrap();
    let coordinator = Command::new(ckptd)
        .args(["coordinator", "--listen", "127.0.0.1:0", "--dir"])
        .arg(&head)
        .stdin(Stdio::null())
        .stdout(log)
        .spawn();
    let _coordinator = Killed(coordinator.unwrap());
    let ask = |words: &[&str]| {
        let output = Command::new(ckptd).args(words).arg("--dir").arg(&head).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    until("the coordinator answers", || ask(&["nodes"]).0);
    for program in programs(folder.path()) {
        // glibc 2.34 makes threads by clone3.
        let versions: &[u32] = if program.libc == "musl" { &[11, 13, 15] } else { &[15] };
        for android in versions {
            let name = format!("{}-{android}", program.libc);
            let (given, token) = ask(&["token"]);
            assert!(given);
            let errors = folder.path().join(format!("{name}.log"));
            let agent = sandboxed(&sandbox, *android, &program, folder.path())
                .args(["agent", "--speed", "1", "--name", &name, "--join", token.trim(), "--dir"])
                .arg(folder.path().join(&name))
                .stderr(std::fs::File::create(&errors).unwrap())
                .spawn();
            let mut agent = Killed(agent.unwrap());
            until(&format!("{name} is a member"), || {
                let ended = agent.0.try_wait().unwrap();
                assert!(
                    ended.is_none(),
                    "{ended:?}: {}",
                    std::fs::read_to_string(&errors).unwrap()
                );
                let nodes: Value = serde_json::from_str(&ask(&["nodes", "--json"]).1).unwrap();
                let found = nodes.as_array().unwrap().iter().find(|node| node["name"] == *name);
                // No job is placed where none can run.
                found.is_some_and(|node| node["state"] == "alive" && node["slots"] == 0)
            });
        }
    }
}
