//! Who is connected to whom, from the kernel's list of sockets.

use std::collections::{HashMap, HashSet};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{FileId, Pid};
use super::super::super::sys::network;
use super::super::super::sys::sock_diag::{self, UnixEntry};
use super::{
    DumpContext, External, Found, Probe, UnixKind, UnixLink, UnixSocket, queue, refused, soon,
};

/// RCV_SHUTDOWN and SEND_SHUTDOWN (include/net/sock.h).
const RECEIVE: u8 = 1;
const SEND: u8 = 2;

/// Fills in links and shutdowns.
pub(super) fn find(all: &mut [Found<'_, UnixSocket>], context: &mut DumpContext) -> Result<()> {
    let mut listed: HashMap<u32, UnixEntry> = HashMap::new();
    // All have inodes of one file system.
    for place in std::iter::once(None).chain(network::places().into_iter().map(Some)) {
        let entries = network::within(place, sock_diag::unix_sockets)?;
        listed.extend(entries.into_iter().map(|entry| (entry.inode, entry)));
    }
    let by_inode: HashMap<u32, FileId> =
        all.iter().map(|found| (found.probe.stat.st_ino as u32, found.id)).collect();
    let files: HashSet<u32> = listed.values().filter_map(|entry| entry.bound_to).collect();
    for found in all.iter_mut() {
        let bound_to =
            listed.get(&(found.probe.stat.st_ino as u32)).and_then(|entry| entry.bound_to);
        if let Some(name) = &mut found.object.name {
            name.identify(bound_to, found.probe, &files, context);
        }
    }
    let mut waiting: HashMap<u32, (FileId, u32)> = HashMap::new();
    for found in all.iter_mut() {
        let UnixLink::Listening { backlog, by } = &mut found.object.link else { continue };
        *by = caller(found.probe, found.id, context);
        let Some(entry) = listed.get(&(found.probe.stat.st_ino as u32)) else { continue };
        *backlog = entry.send_queue as i32;
        for (place, inode) in entry.waiting.iter().enumerate() {
            if !by_inode.contains_key(inode) {
                return Err(soon(
                    found.probe,
                    "a listening socket with a connection from outside of the job, or already closed",
                    "it will be accepted soon: try again",
                ));
            }
            waiting.insert(*inode, (found.id, place as u32));
        }
    }
    for found in all.iter_mut() {
        if matches!(found.object.link, UnixLink::Listening { .. }) {
            continue;
        }
        let inode = found.probe.stat.st_ino as u32;
        let entry = listed.get(&inode).ok_or_else(|| {
            EngineError::odd("the kernel's list of sockets", format!("no Unix socket {inode}"))
        })?;
        found.object.shut_read = entry.shutdown & RECEIVE != 0;
        found.object.shut_write = entry.shutdown & SEND != 0;
        let Some(peer) = entry.peer else { continue };
        found.object.peer_process = getsockopt(&found.probe.copy, PeerCredentials)
            .ok()
            .and_then(|peer| context.pids.get(&peer.pid()).copied());
        if let Some(&(listener, place)) = waiting.get(&inode) {
            if entry.send_queue > 0 {
                return Err(soon(
                    found.probe,
                    "a connection with bytes in it that has not been accepted yet",
                    "it will be accepted soon: try again",
                ));
            }
            let by = Some(found.probe.pid);
            found.object.link = UnixLink::Waiting { listener, place, by };
        } else if let Some(&file) = by_inode.get(&peer) {
            found.object.link = UnixLink::Socket { file };
        } else if let Some(end) = context.relays_of((found.probe.stat.st_dev, peer.into())).pop() {
            found.object.link = UnixLink::Relay { end };
        } else {
            found.object.link = UnixLink::Gone { reset: queue::has_error(found.probe)? };
            let closed = peer == 0
                && (found.object.variety == UnixKind::Datagram || entry.shutdown == RECEIVE | SEND);
            if !closed {
                outside(found, context)?;
            }
        }
    }
    Ok(())
}

/// Who has called listen(2) for it, among those who still have it.
fn caller(probe: &Probe, id: FileId, context: &DumpContext) -> Option<Pid> {
    let host_pid = getsockopt(&probe.copy, PeerCredentials).ok()?.pid();
    let mut held = context.descriptors.range((host_pid, 0)..=(host_pid, i32::MAX));
    if !held.any(|(_, file)| *file == id) {
        return None;
    }
    context.pids.get(&host_pid).copied()
}

fn outside(found: &Found<'_, UnixSocket>, context: &mut DumpContext) -> Result<()> {
    let probe = found.probe;
    if context.external == External::Fail {
        return Err(refused(
            probe,
            "a Unix socket connected to a process outside of the job",
            "close it, or run with --external warn",
        ));
    }
    context.warn(format!(
        "process {} ({}), descriptor {}: a Unix socket leads out of the job; after a restart its peer \
         will have closed",
        probe.pid, probe.comm, probe.fd
    ));
    Ok(())
}
