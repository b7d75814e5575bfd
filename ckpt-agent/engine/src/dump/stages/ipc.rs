//! Semaphores and message queues of the job, through whichever of its processes may read them.

use super::Quiesced;
use crate::doing::{self, Thing};
use crate::dump::snapshot_processes::Reading;
use crate::error::{EngineError, Refusal, Result};
use crate::freeze::StoppedProcess;
use crate::graph::{IpcObjects, Pid, ProcessNode};
use crate::ipc::{Listed, ask_undo, read_queue, read_semaphores};
use crate::trace::Remote;

impl Quiesced {
    /// Reads them all, and what each process owes to semaphores; gives back those of the job's own namespace.
    ///
    /// # Errors
    /// A refusal where no process may read one; failed calls.
    pub(super) fn read_ipc(
        &mut self,
        listed: Listed,
        processes: &mut [StoppedProcess],
        readings: &mut [Reading],
    ) -> Result<IpcObjects> {
        for (place, listed) in self.namespaces.take_listed() {
            let objects = self.read_ipc_of(Some(place), listed, processes, readings)?;
            self.namespaces.put_objects(place, objects);
        }
        self.read_ipc_of(None, listed, processes, readings)
    }

    /// Those of one IPC namespace, by the processes that are in it. `None`: the job's.
    fn read_ipc_of(
        &mut self,
        namespace: Option<u32>,
        listed: Listed,
        processes: &mut [StoppedProcess],
        readings: &mut [Reading],
    ) -> Result<IpcObjects> {
        let mut objects = IpcObjects::default();
        if listed.is_empty() {
            return Ok(objects);
        }
        doing::begin("reading semaphores and message queues", Thing::Job);
        let inside = processes.iter_mut().zip(readings);
        let inside =
            inside.filter(|(process, _)| self.namespaces.ipc_of(process.host_pid) == namespace);
        let mut inside: Vec<_> = inside.collect();
        for set in listed.semaphores {
            let read = first(&mut inside, |remote| read_semaphores(remote, set))?;
            let (reader, mut set) = read.ok_or_else(|| unread("semaphore set", set.0.number))?;
            set.last.iter_mut().for_each(|pid| *pid = self.as_job_numbers(reader, *pid));
            objects.semaphores.push(set);
        }
        for queue in listed.queues {
            let context = &mut self.context;
            let read = first(&mut inside, |remote| read_queue(remote, context, queue))?;
            let (_, read) = read.ok_or_else(|| unread("message queue", queue.0.number))?;
            objects.queues.push(read);
        }
        for (process, reading) in inside {
            doing::begin("asking", Thing::Process(self.nodes[&process.host_pid].pid));
            let mut remote = process.lend(reading.entry_point)?;
            reading.inside.undo = ask_undo(&mut remote, &objects)?;
        }
        Ok(objects)
    }

    /// A process that another one has told of, as the job numbers it: one in a PID namespace of its own tells what it sees. Whoever
    /// it can't see is nobody to it.
    fn as_job_numbers(&self, reader: i32, told: Pid) -> Pid {
        let Some(own) = self.nodes.get(&reader).and_then(|node| node.inside) else { return told };
        let is_meant = |node: &&ProcessNode| {
            let inside = node.inside;
            inside.is_some_and(|inside| (inside.namespace, inside.pid) == (own.namespace, told))
        };
        self.nodes.values().find(is_meant).map_or(0, |node| node.pid)
    }
}

/// What the first process says that may, and which one that is, as this machine numbers it.
fn first<T>(
    inside: &mut [(&mut StoppedProcess, &mut Reading)],
    mut read: impl FnMut(&mut Remote<'_>) -> Result<Option<T>>,
) -> Result<Option<(i32, T)>> {
    for (process, reading) in inside {
        let host_pid = process.host_pid;
        let mut remote = process.lend(reading.entry_point)?;
        if let Some(found) = read(&mut remote)? {
            return Ok(Some((host_pid, found)));
        }
    }
    Ok(None)
}

fn unread(what: &str, number: i32) -> EngineError {
    EngineError::Refused(Refusal::new(
        format!("no process of the job may read its {what} {number}"),
        "give its owner the right to read it",
    ))
}
