//! A cluster on one machine: nodes made of namespaces, on a bridge in a network namespace of its own.
//!
//! Each node has its own network, host name, PIDs, IPC and mounts: /proc, /tmp, /run and /dev/shm of its
//! own, a disk with a home and a work directory at [`HOME`] and [`WORK`], and at [`SHARED`] the programs that
//! all nodes have. Nothing of it is seen on the outside. Any number of clusters may exist side by side. A node
//! can be killed, started again, cut off, healed and slowed. Everything goes when the [`Cluster`] is dropped or
//! the process that made it ends, in whatever way.

mod apps;
mod background;
pub mod capture;
pub mod ckptd;
pub mod demo;
mod group;
mod hub;
pub mod inside;
pub mod job;
mod node;
pub mod s3;
pub mod slurm;
pub mod status;
pub mod suite;
mod wait;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::job::Failure;

pub use background::Background;
pub use capture::Capture;
pub use group::Share;
pub use node::{Node, Output};
pub use wait::until;

use hub::Hub;

/// Where nodes find programs.
pub const PATH: &str = "/mnt/shared:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A node's home directory.
pub const HOME: &str = "/mnt/home";
/// Where commands on a node start.
pub const WORK: &str = "/mnt/work";
/// Programs that all nodes have; first in PATH.
pub const SHARED: &str = "/mnt/shared";
/// Where a node's ckptd keeps its things.
pub const CKPTD_DIR: &str = "/mnt/home/ckptd";

/// What the hub is told when the cluster's files are to stay.
pub(crate) const KEEP: &str = "keep";

/// How a cluster is made.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Nodes called node1, node2 and so on.
    pub nodes: usize,
    /// Whether there is a node0 beside them.
    pub head: bool,
    /// Processor time of each node, in cores; None: no limit.
    pub cores: Option<f64>,
    /// What single nodes have instead, by their numbers.
    pub shares: BTreeMap<usize, Share>,
}

impl Spec {
    /// `nodes` nodes and a node0, without limits.
    pub fn new(nodes: usize) -> Spec {
        Spec { nodes, head: true, cores: None, shares: BTreeMap::new() }
    }

    fn share(&self, number: usize) -> Option<Share> {
        self.shares.get(&number).copied().or_else(|| self.cores.map(Share::of))
    }
}

/// A running cluster.
pub struct Cluster {
    // Nodes go before the hub: their cables end there.
    nodes: Vec<Node>,
    folder: PathBuf,
    hub: Hub,
}

impl Cluster {
    /// Starts a cluster; all nodes are up when it returns.
    ///
    /// # Errors
    /// When the kernel or a missing program does not allow it.
    pub fn start(spec: &Spec) -> Result<Cluster, Failure> {
        let folder = tempfile::Builder::new().prefix("ckptd-cluster-").tempdir_in("/tmp");
        let folder = folder.map_err(failure("make a folder"))?.keep();
        // The hub removes it from now on.
        let hub = Hub::start(&folder)?;
        let mut cluster = Cluster { nodes: Vec::new(), folder, hub };
        cluster.furnish(spec)?;
        for number in usize::from(!spec.head)..=spec.nodes {
            let node = Node::start(number, &cluster.folder, &cluster.hub, spec.share(number))?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    /// Folders and files that the nodes are made from.
    fn furnish(&self, spec: &Spec) -> Result<(), Failure> {
        let mut hosts = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
        for number in 0..=spec.nodes {
            hosts += &format!("{} {}\n", node::address(number), node::name(number));
        }
        for name in ["shared", "logs"] {
            fs::create_dir(self.folder.join(name)).map_err(failure("make a folder"))?;
        }
        fs::write(self.folder.join("hosts"), hosts).map_err(failure("write hosts"))
    }

    /// Node `number`.
    ///
    /// # Panics
    /// When the cluster was made without it.
    pub fn node(&self, number: usize) -> &Node {
        let found = self.nodes.iter().find(|node| node.number() == number);
        found.unwrap_or_else(|| panic!("the cluster has no node{number}"))
    }

    /// All nodes, node0 first if there is one.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Puts a program where all nodes have it; its path there.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn share(&self, program: &Path) -> Result<String, Failure> {
        let name = program.file_name().unwrap_or_default();
        copy_to_execute(program, &self.folder.join("shared").join(name))?;
        Ok(Path::new(SHARED).join(name).display().to_string())
    }

    /// Writes a script where all nodes have it; its path there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn share_script(&self, name: &str, text: &str) -> Result<String, Failure> {
        let path = self.folder.join("shared").join(name);
        let draft = path.with_extension("draft");
        let done = fs::write(&draft, text)
            .and_then(|()| fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)));
        done.map_err(failure(&format!("write {name}")))?;
        copy_to_execute(&draft, &path)?;
        Ok(format!("{SHARED}/{name}"))
    }

    /// Looks from now on at what goes over the bridge: for a marker, and for packets that are of none of these ports.
    ///
    /// # Errors
    /// When the kernel does not allow it.
    pub fn capture(&self, marker: &str, ports: &[u16]) -> Result<Capture, Failure> {
        Capture::start(self.hub.pid(), marker, ports)
    }

    /// The cluster's files, on the outside: nodeN, shared, logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves the cluster's files where they are when the cluster ends.
    pub fn keep_files(&mut self) {
        self.hub.keep();
    }
}

/// Names what could not be done.
pub(crate) fn failure<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Failure + '_ {
    move |error| Failure(format!("failed to {what}: {error}"))
}

/// Copies a file by a process of its own: one that this process had open for writing, a child of another thread may have
/// open still, until it executes something, and the kernel executes no such file (ETXTBSY, execve(2)).
fn copy_to_execute(from: &Path, to: &Path) -> Result<(), Failure> {
    let what = format!("copy {} to {}", from.display(), to.display());
    let status = Command::new("cp").arg("--").args([from, to]).status();
    match status.map_err(failure(&what))? {
        status if status.success() => Ok(()),
        status => Err(Failure(format!("failed to {what}: cp ended with {status}"))),
    }
}
