//! Semaphores and message queues of the job, through whichever of its processes may read them.

use super::Quiesced;
use crate::doing::{self, Thing};
use crate::dump::snapshot_processes::Reading;
use crate::error::{EngineError, Refusal, Result};
use crate::freeze::StoppedProcess;
use crate::graph::IpcObjects;
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
            objects.semaphores.push(read.ok_or_else(|| unread("semaphore set", set.0.number))?);
        }
        for queue in listed.queues {
            let context = &mut self.context;
            let read = first(&mut inside, |remote| read_queue(remote, context, queue))?;
            objects.queues.push(read.ok_or_else(|| unread("message queue", queue.0.number))?);
        }
        for (process, reading) in inside {
            doing::begin("asking", Thing::Process(self.nodes[&process.host_pid].pid));
            let mut remote = process.lend(reading.entry_point)?;
            reading.inside.undo = ask_undo(&mut remote, &objects)?;
        }
        Ok(objects)
    }
}

/// What the first process says that may.
fn first<T>(
    inside: &mut [(&mut StoppedProcess, &mut Reading)],
    mut read: impl FnMut(&mut Remote<'_>) -> Result<Option<T>>,
) -> Result<Option<T>> {
    for (process, reading) in inside {
        let mut remote = process.lend(reading.entry_point)?;
        if let Some(found) = read(&mut remote)? {
            return Ok(Some(found));
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
