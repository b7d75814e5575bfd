//! One node: what runs on it, and what can be done to it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::background::Background;
use super::group::{Group, Share};
use super::hub::{self, Hub};
use super::inside::hub::BRIDGE;
use super::{CKPTD_DIR, HOME, PATH, WORK, failure};
use crate::job::Failure;

/// How long a command may take that is run to its end.
const RUN_LIMIT: Duration = Duration::from_secs(30);

/// What a command on a node has done.
#[derive(Debug)]
pub struct Output {
    /// Exit status, 128 + N for signal N.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A node of a [`super::Cluster`].
pub struct Node {
    number: usize,
    folder: PathBuf,
    hub: u32,
    group: Option<Group>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// While the node is up: its maker, and its first process.
    up: Option<(Child, i32)>,
    commands: usize,
    starts: usize,
    /// How often its address has changed.
    moves: usize,
}

/// Address of a node.
pub(super) fn address(number: usize) -> String {
    format!("10.77.{}.{}", number / 200, 10 + number % 200)
}

/// The address that it has once it has changed so often.
fn moved_address(number: usize, moves: usize) -> String {
    match moves {
        0 => address(number),
        moves => format!("10.77.{}.{}", 100 + moves, 10 + number % 200),
    }
}

/// Name of a node.
pub(super) fn name(number: usize) -> String {
    format!("node{number}")
}

impl Node {
    pub(super) fn start(
        number: usize,
        folder: &Path,
        hub: &Hub,
        share: Option<Share>,
    ) -> Result<Node, Failure> {
        let group = share.map(|share| Group::new(&name(number), share)).transpose()?;
        let node = Node {
            number,
            folder: folder.to_owned(),
            hub: hub.pid(),
            group,
            state: Mutex::default(),
        };
        node.power_on()?;
        Ok(node)
    }

    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its host name.
    pub fn name(&self) -> String {
        name(self.number)
    }

    /// Its address.
    pub fn address(&self) -> String {
        address(self.number)
    }

    /// Its disk on the outside; `home` and `work` are in it.
    pub fn disk(&self) -> PathBuf {
        self.folder.join(self.name())
    }

    /// Whether it is switched on.
    pub fn is_up(&self) -> bool {
        self.state().up.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic elsewhere has left is still true.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the node, after [`Node::kill`]: with its disk, but an empty /tmp.
    ///
    /// # Errors
    /// When it is up already, or the kernel refuses.
    pub fn power_on(&self) -> Result<(), Failure> {
        let mut state = self.state();
        if state.up.is_some() {
            return Err(Failure(format!("{} is up already", self.name())));
        }
        std::fs::create_dir_all(self.disk()).map_err(failure("make a node's disk"))?;
        state.starts += 1;
        state.moves = 0;
        // Each life has a cable of its own.
        let port = format!("{}-{}", self.name(), state.starts);
        let mut command = hub::role("node")?;
        command.args(["--hub", &self.hub.to_string(), "--name", &self.name(), "--port", &port]);
        command.args(["--address", &format!("{}/16", self.address())]);
        command.arg("--disk").arg(self.disk());
        command.arg("--shared").arg(self.folder.join("shared"));
        command.arg("--hosts").arg(self.folder.join("hosts"));
        let (maker, mut lines) = hub::start(&mut command)?;
        let init = hub::expect(&mut lines, "ready")?;
        let init = init.parse().map_err(failure("read a process id"))?;
        Hub::network(self.hub, &["ip", "link", "set", &port, "master", BRIDGE, "up"])?;
        state.up = Some((maker, init));
        Ok(())
    }

    /// Kills the node outright: all its processes get SIGKILL at once, by the death of their PID
    /// namespace. Its disk stays. Nothing is left when this returns.
    ///
    /// # Errors
    /// When it is not up.
    pub fn kill(&self) -> Result<(), Failure> {
        let port = self.port()?;
        let up = self.state().up.take();
        let (mut maker, init) = up.ok_or_else(|| Failure(format!("{} is down", self.name())))?;
        kill(Pid::from_raw(init), Signal::SIGKILL).map_err(failure("kill a node"))?;
        maker.wait().map_err(failure("wait for a node's end"))?;
        // The kernel takes an empty network namespace apart when it comes to it, which takes long on a full machine.
        // Until then the dead would answer for the node's address, and against the node once it is up again.
        match Hub::network(self.hub, &["ip", "link", "delete", &port]) {
            // Or it has just done so.
            Err(Failure(text))
                if !["Cannot find device", "No such device"]
                    .iter()
                    .any(|gone| text.contains(gone)) =>
            {
                Err(Failure(text))
            }
            _ => Ok(()),
        }
    }

    /// Cuts the node off: what it sends and what is sent to it vanishes; nobody is told.
    ///
    /// # Errors
    /// When it is not up.
    pub fn cut(&self) -> Result<(), Failure> {
        Hub::network(self.hub, &["ip", "link", "set", &self.port()?, "nomaster"])
    }

    /// Connects it again.
    ///
    /// # Errors
    /// When it is not up.
    pub fn heal(&self) -> Result<(), Failure> {
        Hub::network(self.hub, &["ip", "link", "set", &self.port()?, "master", BRIDGE])
    }

    /// Gives the node another address, as another network does: what it had is nobody's from then on, and nobody is
    /// told. [`Node::address`] stays the first.
    ///
    /// # Errors
    /// When it is not up, or has had all.
    pub fn change_address(&self) -> Result<String, Failure> {
        let (before, now) = {
            let mut state = self.state();
            state.moves += 1;
            (moved_address(self.number, state.moves - 1), moved_address(self.number, state.moves))
        };
        let six = [&before, &now].map(|ip| format!("fd00:c::{ip}/64"));
        self.must_run(&["ip", "address", "delete", &format!("{before}/16"), "dev", "eth0"])?;
        // A kernel without IPv6 has none.
        let _ = self.run(&["ip", "address", "delete", &six[0], "dev", "eth0"], &[])?;
        let _ = self.run(&["ip", "address", "add", &six[1], "dev", "eth0", "nodad"], &[])?;
        self.must_run(&["ip", "address", "add", &format!("{now}/16"), "dev", "eth0"])?;
        Ok(now)
    }

    /// Delays what the node sends.
    ///
    /// # Errors
    /// When it is not up, or this kernel has no network emulator (sch_netem).
    pub fn slow(&self, milliseconds: u32) -> Result<(), Failure> {
        let delay = format!("{milliseconds}ms");
        let words = ["tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "delay", &delay];
        let output = self.run(&words, &[])?;
        if output.status == 0 {
            return Ok(());
        }
        Err(Failure(format!("failed to slow {}: {}", self.name(), output.stderr.trim())))
    }

    /// Gives a node that has a limit of processor time another one, in cores.
    ///
    /// # Errors
    /// When it has none, or the kernel refuses.
    pub fn set_cores(&self, cores: f64) -> Result<(), Failure> {
        self.limited()?.set(cores)
    }

    /// The processor time that a node with a limit of it has had.
    ///
    /// # Errors
    /// When it has none, or the kernel does not tell.
    pub fn processor_time(&self) -> Result<Duration, Failure> {
        self.limited()?.used()
    }

    fn limited(&self) -> Result<&Group, Failure> {
        self.group.as_ref().ok_or_else(|| Failure(format!("{} has no limit", self.name())))
    }

    fn port(&self) -> Result<String, Failure> {
        let state = self.state();
        if state.up.is_none() {
            return Err(Failure(format!("{} is down", self.name())));
        }
        Ok(format!("{}-{}", self.name(), state.starts))
    }

    /// A command on the node, as the outside would start it. Nothing of the outside's environment reaches it.
    fn command(&self, words: &[&str], environment: &[(&str, &str)]) -> Result<Command, Failure> {
        let up = self.state().up.as_ref().map(|(_, init)| init.to_string());
        let init = up.ok_or_else(|| Failure(format!("{} is down", self.name())))?;
        let mut command = hub::role("enter")?;
        command.args(["--init", &init, "--folder", WORK]);
        if let Some(group) = &self.group {
            for folder in group.folders() {
                command.arg("--group").arg(folder);
            }
        }
        command.arg("--").args(words);
        command.env_clear().env("HOME", HOME).env("CKPTD_DIR", CKPTD_DIR);
        command.envs([("USER", "root"), ("LOGNAME", "root"), ("LANG", "C.UTF-8")]);
        command.env("PATH", PATH);
        // A node's user is its root.
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.envs(environment.iter().copied());
        Ok(command)
    }

    /// Runs a command to its end, at most half a minute.
    ///
    /// # Errors
    /// When the node is down or the command does not end.
    pub fn run(&self, words: &[&str], environment: &[(&str, &str)]) -> Result<Output, Failure> {
        let mut running = self.spawn(words, environment)?;
        let status = running.wait(RUN_LIMIT)?;
        Ok(Output { status, stdout: running.output(), stderr: running.errors() })
    }

    /// Runs a command, which must succeed; its standard output.
    ///
    /// # Errors
    /// When it does not.
    pub fn must_run(&self, words: &[&str]) -> Result<String, Failure> {
        let output = self.run(words, &[])?;
        if output.status == 0 {
            return Ok(output.stdout);
        }
        let (name, status, errors) = (self.name(), output.status, output.stderr);
        Err(Failure(format!("{words:?} on {name} ended with {status}: {}", errors.trim())))
    }

    /// Starts a command in the background; its output goes to files of the cluster.
    ///
    /// # Errors
    /// When the node is down.
    pub fn spawn(
        &self,
        words: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Background, Failure> {
        let command = self.command(words, environment)?;
        let number = {
            let mut state = self.state();
            state.commands += 1;
            state.commands
        };
        let what = format!("{} on {}", words.join(" "), self.name());
        let log = self.folder.join("logs").join(format!("{}.{number}", self.name()));
        Background::start(command, what, &log)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that it is down.
        let _ = self.kill();
    }
}
