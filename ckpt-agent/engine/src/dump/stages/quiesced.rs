//! No byte is under way.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use tracing::debug_span;

use super::frozen::Frozen;
use super::read::Read;
use super::snapshot::{ProcessDump, Snapshot, SnapshotData};
use crate::arch::{Architecture, Current};
use crate::doing::{self, Thing};
use crate::dump::collect::Collected;
use crate::dump::message_senders;
use crate::dump::namespaces;
use crate::dump::offers;
use crate::dump::process;
use crate::dump::sharing::OwnDirectories;
use crate::error::Result;
use crate::folders;
use crate::freeze::StoppedProcess;
use crate::graph::{
    Graph, ProcessNode, ProcessState, RelayEnd, RelayState, RemoteShell, Sharing, WholeFolder,
    version_of,
};
use crate::objects::{DumpContext, Object};
use crate::sys::network;
use crate::sys::page::page_size;
use crate::trace::Vdso;

/// No byte is under way; all kernel objects have been read.
#[derive(Debug)]
pub struct Quiesced {
    pub(super) frozen: Frozen,
    pub(super) nodes: BTreeMap<i32, ProcessNode>,
    pub(super) namespaces: namespaces::Own,
    pub(super) sharing: Vec<Sharing>,
    /// Of threads.
    pub(super) directories: OwnDirectories,
    pub(super) collected: Collected,
    pub(super) context: DumpContext,
    pub(super) relay_states: Vec<(RelayEnd, Vec<u8>, bool)>,
    /// Network namespaces of the job's own, as long as their sockets are looked at.
    pub(super) known_networks: Option<network::Known>,
}

impl Quiesced {
    /// Reads all processes and makes the snapshot processes. The job still stands when this returns.
    ///
    /// # Errors
    /// Refusals; no memory for the snapshot processes. The job goes on.
    pub fn snapshot(mut self) -> Result<Snapshot> {
        let Collected { files, probes, .. } = &mut self.collected;
        Object::late_all(files, probes, &mut self.context)?;
        self.known_networks = None;
        let page = page_size();
        let mut processes = std::mem::take(&mut self.frozen.job.processes);
        processes.iter().for_each(StoppedProcess::die_with_tracer);
        let result = self.read_processes(&mut processes, page);
        self.frozen.job.processes = processes;
        let Read { dumps, snapshot_processes, vdso, clocks, ipc } = result?;
        let folders = self.take_folders(&dumps)?;
        self.tell_copies_on_disk();
        let portable = Current::jump(0).is_some();
        let vdso_image = vdso.as_ref().and_then(Vdso::image).filter(|_| portable);
        let vdso_image = vdso_image.map(|bytes| self.context.keep(bytes.to_vec()));
        let unknown = message_senders::unknown(&self.collected.files, &self.collected.probes);
        unknown.into_iter().for_each(|line| self.context.warn(line));
        drop(std::mem::take(&mut self.collected.probes));
        // Before the job goes on: what it closes must be closed.
        drop(std::mem::take(&mut self.context.held));
        let relays = self.relay_states();
        let remote_shells = self.remote_shells();
        let graph = Graph {
            version: version_of(self.sharing.iter().any(|one| one.memory)),
            architecture: Current::NAME.to_owned(),
            page_size: page,
            clocks,
            vdso: vdso.map(|vdso| vdso.hash()).unwrap_or_default(),
            vdso_image,
            layout: Current::layout(),
            offers: offers::of(&dumps, &self.frozen.settings.offers),
            root: self.frozen.settings.root,
            init: match process::is_among_others(self.frozen.depth) {
                true => self.frozen.settings.init,
                false => 0,
            },
            processes: parents_first(&self.nodes, &dumps),
            files: std::mem::take(&mut self.collected.files),
            inodes: Vec::new(),
            folders,
            kept: self.frozen.settings.kept.clone(),
            ipc,
            sharing: std::mem::take(&mut self.sharing),
            namespaces: std::mem::take(&mut self.namespaces.all),
            relays,
            remote_shells,
            blobs: Vec::new(),
        };
        let since = self.frozen.job.since;
        let not_inherited = std::mem::take(&mut self.frozen.not_inherited);
        let data =
            SnapshotData { processes: dumps, graph, context: self.context, page, not_inherited };
        Ok(Snapshot { job: Some(self.frozen.job), snapshot_processes, data: Some(data), since })
    }

    fn tell_copies_on_disk(&mut self) {
        match self.context.copying.on_disk() {
            0 => {}
            bytes => self.context.warn(format!(
                "{} MiB of shared memory and files do not fit into memory beside the job: they were copied to disk \
                 while it stood, which takes longer",
                bytes.div_ceil(1 << 20)
            )),
        }
    }

    /// Folders whose whole content belongs to the image; what is open or mapped is in it already.
    fn take_folders(&mut self, dumps: &[ProcessDump]) -> Result<Vec<WholeFolder>> {
        let threads = dumps.iter().flat_map(|dump| &dump.image.threads);
        let mut owners: Vec<u32> =
            threads.flat_map(|thread| thread.credentials.uids.iter().copied()).collect();
        owners.sort_unstable();
        owners.dedup();
        let _taking = debug_span!("folders").entered();
        doing::begin("reading the job's folders", Thing::Job);
        let folders = self.frozen.settings.kept.all_folders().map(PathBuf::as_path);
        folders::take_all(folders, &owners, &mut self.context)
    }

    /// Tells what the agent holds of relays that is not in a native object: bytes for this side as the
    /// agent encodes them, and whether the far side has closed. Relays that are not named hold
    /// nothing.
    pub fn set_relay_states(&mut self, states: Vec<(RelayEnd, Vec<u8>, bool)>) {
        self.relay_states = states;
    }

    fn remote_shells(&mut self) -> Vec<RemoteShell> {
        let mut shells = Vec::new();
        for host_pid in &self.frozen.job.stand_ins {
            let pid = self.nodes[host_pid].pid;
            if let Some(descriptors) = self.collected.descriptors.remove(host_pid) {
                shells.push(RemoteShell { pid, descriptors });
            }
        }
        shells
    }

    fn relay_states(&mut self) -> Vec<RelayState> {
        let held = std::mem::take(&mut self.relay_states);
        let mut states = Vec::new();
        let ends: Vec<RelayEnd> =
            self.context.relays.iter().map(|relay| relay.end.clone()).collect();
        for end in ends {
            let held = held.iter().find(|(other, ..)| *other == end);
            let bytes = held.map(|(_, bytes, _)| bytes).filter(|bytes| !bytes.is_empty());
            let undelivered = bytes.map(|bytes| self.context.keep(bytes.clone()));
            let far_closed = held.is_some_and(|(_, _, far_closed)| *far_closed);
            states.push(RelayState { end, undelivered, far_closed });
        }
        states
    }
}

/// Living processes as they were frozen, parents before their children, then zombies.
fn parents_first(nodes: &BTreeMap<i32, ProcessNode>, dumps: &[ProcessDump]) -> Vec<ProcessNode> {
    let order: HashMap<i32, usize> =
        dumps.iter().enumerate().map(|(index, dump)| (dump.host_pid, index)).collect();
    let mut placed: Vec<(usize, &ProcessNode)> = nodes
        .iter()
        .map(|(host_pid, node)| (order.get(host_pid).copied().unwrap_or(usize::MAX), node))
        .collect();
    placed.sort_by_key(|(position, node)| {
        (matches!(node.state, ProcessState::Zombie { .. }), *position, node.pid)
    });
    placed.into_iter().map(|(_, node)| node.clone()).collect()
}
