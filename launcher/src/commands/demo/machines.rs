//! The machines of the demonstration, as seen from outside.

use super::daemons::ADDRESS;
use super::error::DemoError;
use super::{Account, PART, account_option, apart};
use ckpt_engine::sys::rtnetlink::Network;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

/// The device that all cables lead to.
pub const BRIDGE: &str = "bridge";
/// Its hardware address: a locally administered one (IEEE 802, the second bit of the first byte).
pub const BRIDGE_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The device of a machine.
pub const DEVICE: &str = "eth0";
/// Bits of the addresses that the machines have in common.
pub const COMMON_BITS: u8 = 24;
/// The folder with the agents' token in that of the demonstration.
pub const TOKEN: &str = "token";
/// What a machine says when its network can be made.
pub const APART: &str = "apart";
/// What it says when its first process runs, before that one's number.
pub const UP: &str = "up";
/// What it is told when its network is made.
pub const WIRED: &str = "wired";
/// The longest line that a machine says, in bytes.
const MAX_LINE: u64 = 4096;

/// A machine. Dropped, it is dead.
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The folder of its agent.
    pub folder: PathBuf,
    maker: Child,
    /// Its first process, with which all others end.
    first: Pid,
}

impl Machine {
    /// Makes one, with an agent that is about to join the cluster.
    ///
    /// # Errors
    /// Where the kernel refuses anything.
    pub fn start(number: u8, folder: &Path, account: Account) -> Result<Self, DemoError> {
        let name = format!("node{number}");
        let [one, two, three, _] = ADDRESS.octets();
        let address = Ipv4Addr::new(one, two, three, 10 + number);
        let folder = folder.join(&name);
        fs::create_dir(&folder).map_err(DemoError::system("make a machine's folder"))?;
        let mut command = apart()?;
        command.args([PART, "machine", &name, &address.to_string()]).arg(&folder);
        command.args(account_option(account));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |error: io::Error| DemoError::Command {
            what: format!("make {name}"),
            said: error.to_string(),
        };
        let mut maker = command.spawn().map_err(failed)?;
        let mut said = BufReader::new(maker.stdout.take().ok_or_else(|| failed(no_pipe()))?);
        expect(&mut said, APART).map_err(failed)?;
        Network::open()
            .and_then(|mut net| net.lay_cable(BRIDGE, &format!("to-{name}"), maker.id(), DEVICE))
            .map_err(DemoError::Network)?;
        let told = maker.stdin.as_mut().ok_or_else(no_pipe);
        told.and_then(|input| writeln!(input, "{WIRED}")).map_err(failed)?;
        let first = expect(&mut said, UP).map_err(failed)?;
        let first =
            first.parse().map(Pid::from_raw).map_err(|error| failed(io::Error::other(error)))?;
        Ok(Self { name, address, folder, maker, first })
    }

    /// Kills all that runs there at once, as if its power were cut.
    ///
    /// # Errors
    /// As kill(2).
    pub fn kill(mut self) -> Result<(), DemoError> {
        self.end().map_err(DemoError::system("kill a machine"))
    }

    fn end(&mut self) -> io::Result<()> {
        kill(self.first, Signal::SIGKILL)?;
        self.maker.wait().map(drop)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Unless it was killed before: then its number may be another's.
        if let Ok(None) = self.maker.try_wait() {
            let _ = self.end();
        }
    }
}

fn no_pipe() -> io::Error {
    io::Error::other("it has no pipe")
}

/// The rest of a line that begins with that word. Anything else is what went wrong.
fn expect(said: &mut BufReader<ChildStdout>, word: &str) -> io::Result<String> {
    let mut line = String::new();
    said.by_ref().take(MAX_LINE).read_line(&mut line)?;
    match line.trim_end().strip_prefix(word) {
        Some(rest) => Ok(rest.trim().to_owned()),
        None if line.is_empty() => Err(io::Error::other("it has ended")),
        None => Err(io::Error::other(line.trim_end().to_owned())),
    }
}
