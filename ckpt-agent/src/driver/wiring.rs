//! TCP connections between instances, made again at a restore.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use protocol::agent::CheckpointNumber;
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{OuterSocket, Rewire, Skipped};
use protocol::task;
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::rewire::{
    AbsentOrder, MOST_UNREAD, Pair, RewireError, Role, Secret, WireOrder, Wires, without_peer,
};
use ckpt_engine::dump::process_file;
use ckpt_engine::graph::{BlobId, FileId, Graph, ProcessImage, ProcessState};
use ckpt_engine::objects::{OuterSocket as Outer, outer_sockets as find};
use ckpt_engine::split::{Holdings, PartOrder};
use ckpt_store::{Checkpoint, ChunkReader, Damage};

/// Why an instance's connections could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// The image is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The image names bytes that it does not have.
    #[error("an image lacks bytes that it names")]
    Incomplete,
    /// More bytes than such an object can have held.
    #[error("{length} bytes in flight are more than {most}")]
    InFlight {
        /// How many the image says.
        length: u64,
        /// How many there can be.
        most: u64,
    },
    /// The open file of that number is to be connected, and is no such connection.
    #[error("file {0} is no connection to elsewhere")]
    NotOuter(u32),
    /// The coordinator sent no secret.
    #[error("a connection's secret is malformed")]
    Secret,
    /// The peer did not come, or something else went wrong with the connection itself.
    #[error(transparent)]
    Rewire(#[from] RewireError),
    /// The kernel refused a connection that has no peer.
    #[error("make a connection whose peer has departed: {0}")]
    Alone(#[source] io::Error),
    /// A thread ended early: a defect of ckptd.
    #[error(transparent)]
    Thread(#[from] JoinError),
}

/// TCP sockets of a part of an image whose peers are in other parts or instances.
///
/// # Errors
/// See [`WiringError`].
pub fn outer_sockets(
    folder: &Path,
    checkpoint: CheckpointNumber,
    assignment: &BTreeMap<i32, u32>,
    part: u32,
) -> Result<Vec<OuterSocket>, WiringError> {
    let image = Checkpoint::open(folder, checkpoint)?;
    let graph: Graph = image.read_json("graph.json")?;
    let living = graph.processes.iter().filter(|node| node.state == ProcessState::Alive);
    let images = living.map(|node| image.read_json::<ProcessImage>(&process_file(node.pid)));
    let images: Vec<ProcessImage> = images.collect::<Result<_, _>>()?;
    let files = Holdings::of(&graph, &images).files_of(|pid| assignment.get(&pid) == Some(&part));
    Ok(find(&graph, &files)
        .into_iter()
        // Bytes that never arrived can't be had: it is found reset, as on one machine.
        .filter(|socket| !socket.in_flight)
        .map(|socket| OuterSocket { file: socket.file.0, local: socket.local, peer: socket.peer })
        .collect())
}

/// Makes the connections of an instance, and lays into them what had not been read.
///
/// # Errors
/// Nothing is left then.
pub async fn connect(
    wires: &Wires,
    instance: &InstanceKey,
    folder: &Path,
    checkpoint: CheckpointNumber,
    connections: Vec<Rewire>,
    deadline: Instant,
) -> Result<Vec<(FileId, OwnedFd)>, WiringError> {
    if connections.is_empty() {
        return Ok(Vec::new());
    }
    let (folder, instance) = (folder.to_owned(), instance.clone());
    let plan = move || plan(&instance, &folder, checkpoint, connections);
    let plan = task::blocking(plan).await?;
    let (files, orders): (Vec<FileId>, Vec<WireOrder>) = plan.into_iter().unzip();
    let sockets = wires.connect(orders, deadline).await?;
    Ok(files.into_iter().zip(sockets.into_iter().map(OwnedFd::from)).collect())
}

fn plan(
    instance: &InstanceKey,
    folder: &Path,
    checkpoint: CheckpointNumber,
    connections: Vec<Rewire>,
) -> Result<Vec<(FileId, WireOrder)>, WiringError> {
    let image = Checkpoint::open(folder, checkpoint)?;
    let graph: Graph = image.read_json("graph.json")?;
    let reader = image.reader()?;
    let mut plan = Vec::new();
    for wanted in connections {
        let file = FileId(wanted.file);
        // By itself: its peer is elsewhere, whatever else is here.
        let socket = find(&graph, &BTreeSet::from([file]))
            .pop()
            .ok_or(WiringError::NotOuter(wanted.file))?;
        let secret = Secret::from_hex(&wanted.secret).ok_or(WiringError::Secret)?;
        let pair = Pair::new(&secret, instance);
        plan.push((file, order(&graph, &reader, &socket, pair, &wanted)?));
    }
    Ok(plan)
}

fn order(
    graph: &Graph,
    reader: &ChunkReader,
    socket: &Outer,
    pair: Pair,
    wanted: &Rewire,
) -> Result<WireOrder, WiringError> {
    let role = match wanted.connect_to {
        Some(to) => Role::Active { to },
        None => Role::Passive,
    };
    let queue = match socket.received {
        Some(blob) => read_blob(graph, reader, blob, MOST_UNREAD)?,
        None => Vec::new(),
    };
    Ok(WireOrder { pair, role, v6: socket.v6, queue, shut_write: socket.shut_write })
}

/// Makes connections of an instance that have no peer any more: by the open file, the job's ends and
/// ours. Blocks.
///
/// # Errors
/// Nothing is left then.
pub fn without_peers(
    folder: &Path,
    checkpoint: CheckpointNumber,
    skipped: &[Skipped],
) -> Result<Absent, WiringError> {
    let files: Vec<u32> = skipped.iter().map(|skipped| skipped.file).collect();
    if files.is_empty() {
        return Ok(Absent::default());
    }
    let image = Checkpoint::open(folder, checkpoint)?;
    let graph: Graph = image.read_json("graph.json")?;
    make_alone(&image, &graph, &files)
}

/// Makes stand-ins for all connections that an instance has with others, none of whom comes to know of it. Blocks.
///
/// # Errors
/// Nothing is left then.
pub fn stand_ins(folder: &Path, checkpoint: CheckpointNumber) -> Result<Absent, WiringError> {
    let image = Checkpoint::open(folder, checkpoint)?;
    let graph: Graph = image.read_json("graph.json")?;
    let whole = PartOrder::whole(&graph);
    let outer = outer_sockets(folder, checkpoint, &whole.assignment, whole.part)?;
    let files: Vec<u32> = outer.iter().map(|socket| socket.file).collect();
    make_alone(&image, &graph, &files)
}

fn make_alone(image: &Checkpoint, graph: &Graph, files: &[u32]) -> Result<Absent, WiringError> {
    let mut made = Absent::default();
    let reader = image.reader()?;
    for number in files {
        let socket = find(graph, &BTreeSet::from([FileId(*number)]))
            .pop()
            .ok_or(WiringError::NotOuter(*number))?;
        let queue = match socket.received {
            Some(blob) => read_blob(graph, &reader, blob, MOST_UNREAD)?,
            None => Vec::new(),
        };
        let Outer { v6, shut_write, peer_shut, .. } = socket;
        let order = AbsentOrder { v6, queue, shut_write, peer_shut };
        let (native, far) = without_peer(&order).map_err(WiringError::Alone)?;
        made.natives.push((FileId(*number), native));
        made.fars.push((*number, far));
    }
    Ok(made)
}

/// Connections without a peer.
#[derive(Debug, Default)]
pub struct Absent {
    /// The job's ends.
    pub natives: Vec<(FileId, OwnedFd)>,
    /// The others.
    pub fars: Vec<(u32, OwnedFd)>,
}

/// All bytes of a blob; what no span covers is zeros.
///
/// # Errors
/// See [`WiringError`].
pub fn read_blob(
    graph: &Graph,
    reader: &ChunkReader,
    blob: BlobId,
    most: u64,
) -> Result<Vec<u8>, WiringError> {
    let blob = graph.blobs.get(blob.0 as usize).ok_or(WiringError::Incomplete)?;
    if blob.length > most {
        return Err(WiringError::InFlight { length: blob.length, most });
    }
    let length = usize::try_from(blob.length).map_err(|_| WiringError::Incomplete)?;
    let mut bytes = vec![0; length];
    let mut piece = Vec::new();
    for span in &blob.spans {
        reader.read(&span.chunk, &mut piece)?;
        let start = usize::try_from(span.offset).map_err(|_| WiringError::Incomplete)?;
        let mut place = bytes.get_mut(start..).ok_or(WiringError::Incomplete)?;
        place.write_all(&piece).map_err(|_| WiringError::Incomplete)?;
    }
    Ok(bytes)
}
