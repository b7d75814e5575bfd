//! SysV semaphores and message queues (sysvipc(7)). They belong to the IPC namespace, which the job has for itself: all that
//! are there travel, under their own numbers.
//!
//! * `lists`: which there are, by the kernel's own lists;
//! * `semaphores`, `queues`: what is in them, asked by calls in a process of the job; and made again in the job's init;
//! * `undo`: what each process gives back to semaphores at its end;
//! * `number`: objects with numbers that are wanted;
//! * `told`: which there are in an IPC namespace of a process's own;
//! * `of_machine`: where the job has no namespace for itself.

mod lists;
pub mod number;
mod of_machine;
mod queues;
mod semaphores;
mod told;
mod undo;

pub use lists::{Listed, listed};
pub use of_machine::refuse_used;
pub use queues::read as read_queue;
pub use semaphores::{claim, read as read_semaphores};
pub use told::{ListedSegment, Told};
pub use undo::{ask as ask_undo, owe as owe_undo};

use super::error::{EngineError, Result};
use super::graph::IpcObjects;
use super::job_init::World;
use super::objects::RestoreContext;

/// Makes all of them in the job's init.
///
/// # Errors
/// A number that cannot be had; a machine on which jobs have no IPC namespace; failed system calls.
pub fn make_all(objects: &IpcObjects, context: &mut RestoreContext<'_>) -> Result<()> {
    if !objects.is_empty() && World::of_this_init() != World::Own {
        return Err(EngineError::Unfit {
            what: "the job has SysV semaphores or message queues, and jobs run without namespaces here".into(),
            way_out: "restart it on a machine with IPC namespaces".into(),
        });
    }
    make_here(objects, context)
}

/// Makes them in the IPC namespace of this process, whichever it is.
///
/// # Errors
/// A number that cannot be had; failed system calls.
pub fn make_here(objects: &IpcObjects, context: &mut RestoreContext<'_>) -> Result<()> {
    for set in &objects.semaphores {
        semaphores::make(set, context)?;
    }
    for queue in &objects.queues {
        queues::make(queue, context)?;
    }
    Ok(())
}
