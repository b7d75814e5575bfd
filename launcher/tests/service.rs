//! Coordinator and agent as services: what they tell the manager that started them, and their units.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// A process that believes it was started by a service manager; killed when dropped.
struct Service {
    manager: UnixDatagram,
    child: Child,
}

impl Service {
    /// Starts it with a watchdog of so many microseconds.
    fn start(dir: &Path, name: &str, watchdog_us: u32, arguments: &[&str]) -> Self {
        let socket = dir.join(format!("{name}.notify"));
        let manager = UnixDatagram::bind(&socket).unwrap();
        // The watchdog is for the process with this number alone.
        let child = Command::new("sh")
            .args(["-c", "WATCHDOG_PID=$$ exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ckptd")])
            .args(arguments)
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", watchdog_us.to_string())
            .env_remove("CKPTD_DIR")
            // As service managers start it.
            .env_remove("HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { manager, child }
    }

    /// What it tells next, if it does in time.
    fn hear(&self, limit: Duration) -> Option<String> {
        let mut bytes = [0; 4096];
        self.manager.set_read_timeout(Some(limit)).unwrap();
        let length = self.manager.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
    }

    /// Waits for a message with this line, and returns it.
    fn wait_for(&self, line: &str) -> String {
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            if let Some(text) = self.hear(LIMIT) {
                if text.lines().any(|found| found == line) {
                    return text;
                }
            }
        }
        panic!("never heard {line}");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// It gives signs of life, none while it hangs, and again afterwards.
    fn expect_signs_of_life(&self) {
        for _ in 0..3 {
            self.wait_for("WATCHDOG=1");
        }
        self.signal(Signal::SIGSTOP);
        while self.hear(Duration::from_millis(20)).is_some() {}
        assert_eq!(self.hear(Duration::from_millis(1200)), None);
        self.signal(Signal::SIGCONT);
        self.wait_for("WATCHDOG=1");
    }

    fn expect_end(&mut self) {
        let text = self.wait_for("STOPPING=1");
        assert!(text.contains("STATUS="), "{text}");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_service_manager_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("coordinator");
    let state = state.to_str().unwrap();
    let listen = ["coordinator", "--listen", "127.0.0.1:0", "--state", state];
    let mut coordinator = Service::start(dir.path(), "coordinator", 800_000, &listen);
    let ready = coordinator.wait_for("READY=1");
    assert!(ready.contains("STATUS=listening at 127.0.0.1:"), "{ready}");
    coordinator.expect_signs_of_life();

    let token = Command::new(env!("CARGO_BIN_EXE_ckptd"))
        .args(["token", "--state", state])
        .output()
        .unwrap();
    let token = String::from_utf8(token.stdout).unwrap();
    let own = dir.path().join("agent");
    let file = dir.path().join("token");
    std::fs::write(&file, &token).unwrap();
    let file = file.to_str().unwrap();
    let join = ["agent", "--join-file", file, "--name", "desk", "--speed", "1", "--dir"];
    let join = [&join[..], &[own.to_str().unwrap()]].concat();
    let mut agent = Service::start(dir.path(), "agent", 800_000, &join);
    let ready = agent.wait_for("READY=1");
    assert!(ready.contains("STATUS=a member by the name of desk"), "{ready}");
    agent.expect_signs_of_life();
    agent.signal(Signal::SIGUSR1);
    agent.expect_end();
    let mut agent = Service::start(dir.path(), "again", 800_000, &join);
    agent.wait_for("READY=1");
    agent.signal(Signal::SIGTERM);
    agent.expect_end();
    coordinator.signal(Signal::SIGTERM);
    coordinator.expect_end();
}

/// Starts an agent; its process and what it says.
fn agent(dir: &Path, name: &str, arguments: &[&str], credentials: Option<&Path>) -> Child {
    let errors = std::fs::File::create(dir.join(format!("{name}.errors"))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ckptd"));
    command.args(["agent", "--name", name, "--speed", "1", "--dir"]).arg(dir.join(name));
    command.args(arguments).env_remove("CKPTD_DIR").env_remove("CREDENTIALS_DIRECTORY");
    if let Some(folder) = credentials {
        command.env("CREDENTIALS_DIRECTORY", folder);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors).spawn().unwrap()
}

/// No user of the machine can read a token in `ps`, whichever way it came.
#[test]
fn a_token_is_not_left_on_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("coordinator");
    let state = state.to_str().unwrap();
    let listen = ["coordinator", "--listen", "127.0.0.1:0", "--state", state];
    let coordinator = Service::start(dir.path(), "coordinator", 800_000, &listen);
    coordinator.wait_for("READY=1");
    let token = Command::new(env!("CARGO_BIN_EXE_ckptd"))
        .args(["token", "--uses", "3", "--state", state])
        .output()
        .unwrap();
    let token = String::from_utf8(token.stdout).unwrap();
    let credentials = dir.path().join("credentials");
    std::fs::create_dir(&credentials).unwrap();
    std::fs::write(credentials.join("ckptd.join"), &token).unwrap();
    for (name, arguments, credentials) in [
        ("one", &["--join", token.trim()][..], None),
        ("two", &["--join-file", "-"], None),
        ("three", &[], Some(credentials.as_path())),
    ] {
        let mut child = agent(dir.path(), name, arguments, credentials);
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), token.as_bytes()).unwrap_or(());
        let end = Instant::now() + LIMIT;
        while !dir.path().join(name).join("agent.sock").exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
        let lock = std::fs::metadata(dir.path().join(name).join("agent.lock"));
        let _ = child.kill();
        let _ = child.wait();
        let said = std::fs::read_to_string(dir.path().join(format!("{name}.errors"))).unwrap();
        assert!(dir.path().join(name).join("agent.sock").exists(), "{name}: {said}");
        assert!(line.contains(name) && !line.contains(token.trim()), "{line}");
        assert_eq!(said.contains("use --join-file"), name == "one", "{said}");
        assert!(!said.contains(token.trim()), "{said}");
        let mode = std::os::unix::fs::MetadataExt::mode(&lock.unwrap());
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn the_units_are_well_formed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd");
    let dir = tempfile::tempdir().unwrap();
    let mut units = Vec::new();
    for name in ["ckptd-coordinator.service", "ckptd-agent.service", "ckptd-leave.service"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let has = |line: &str| text.lines().any(|found| found == line);
        for line in ["Type=notify", "Restart=on-failure", "WatchdogSec=20"] {
            assert_eq!(has(line), !name.contains("leave"), "{name}: {line}");
        }
        for line in ["KillMode=process", "KillSignal=SIGUSR1"] {
            assert_eq!(has(line), name.contains("agent"), "{name}: {line}");
        }
        // What is not installed here is not the units' fault.
        let text = text.replace("/usr/local/bin/ckptd", env!("CARGO_BIN_EXE_ckptd"));
        let text: Vec<&str> = text.lines().filter(|l| !l.starts_with("Documentation=")).collect();
        let unit = dir.path().join(name);
        std::fs::write(&unit, text.join("\n") + "\n").unwrap();
        units.push(unit);
    }
    match Command::new("systemd-analyze").arg("verify").args(&units).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && !said.contains("ckptd-"), "{said}");
        }
        Err(error) => eprintln!("systemd-analyze is not here ({error}): the units are only read"),
    }
}
