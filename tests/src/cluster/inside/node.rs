//! A node's maker: namespaces, network, files, then the node's first process.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::sethostname;

use super::{InsideError, call, join, mounts, program, tell};

/// What a node is to be.
#[derive(Debug, clap::Args)]
pub struct NodeArguments {
    /// The hub's process
    #[arg(long)]
    pub hub: i32,
    /// Host name
    #[arg(long)]
    pub name: String,
    /// Address and length of the network's prefix
    #[arg(long)]
    pub address: String,
    /// The hub's end of the cable
    #[arg(long)]
    pub port: String,
    /// The node's disk
    #[arg(long)]
    pub disk: PathBuf,
    /// Programs for all nodes
    #[arg(long)]
    pub shared: PathBuf,
    /// The cluster's /etc/hosts
    #[arg(long)]
    pub hosts: PathBuf,
}

/// The IPv6 address, and its prefix, of a node with that IPv4 address.
fn address6(ip: &str) -> String {
    format!("fd00:c::{ip}/64")
}

/// Makes the node and waits until nothing of it is left.
///
/// # Errors
/// When the kernel refuses anything.
pub fn run(node: &NodeArguments) -> Result<(), InsideError> {
    // Its namespace is where the cable's other end goes.
    let hub = node.hub.to_string();
    join::join(node.hub, &join::HUB[..1])?;
    let flags = CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC;
    call("make namespaces", unshare(flags))?;
    call("set the host name", sethostname(&node.name))?;
    program(&["ip", "link", "set", "lo", "up"])?;
    let cable = ["type", "veth", "peer", "name", &node.port, "netns", &hub];
    program(&[&["ip", "link", "add", "eth0"][..], &cable].concat())?;
    program(&["ip", "address", "add", &node.address, "dev", "eth0"])?;
    if let Some((ip, _)) = node.address.split_once('/') {
        // A kernel without IPv6 has none; tests that need it say so.
        let _ = program(&["ip", "address", "add", &address6(ip), "dev", "eth0", "nodad"]);
    }
    program(&["ip", "link", "set", "eth0", "up"])?;
    let files = mounts::Files { disk: &node.disk, shared: &node.shared, hosts: &node.hosts };
    let own = call("find this program", std::env::current_exe())?;
    let own = call("open this program", std::fs::File::open(own))?;
    mounts::arrange(&files)?;
    // Only now: the first child from here on is process 1, and `ip` is not to be it.
    call("make a PID namespace", unshare(CloneFlags::CLONE_NEWPID))?;
    // The outside's /proc is still in place: the program is found there though its folder is hidden.
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own));
    // It writes to a pipe of its own, or its word could come before its number.
    let first = Command::new(own).arg0("clusternode").arg("init").stdout(Stdio::piped()).spawn();
    let mut first = call("start the node's first process", first)?;
    let mut word = String::new();
    if let Some(out) = first.stdout.take() {
        call("read from the node's first process", BufReader::new(out).read_line(&mut word))?;
    }
    tell(&format!("{} {}", word.trim_end(), first.id()))?;
    call("wait for the node", first.wait())?;
    Ok(())
}
