//! Tracing: threads that run and threads that stand still are different types, so that what
//! needs a stop cannot be called without one.
//!
//! ptrace(2) ties a tracee to the operating-system thread that seized it: none of these types
//! can be sent to another thread.

mod batch;
mod in_progress;
mod memory;
mod ptrace;
mod remote;
mod thread;
mod vdso;

pub use batch::{Batch, Ticket};
pub use memory::{ProcessMemory, read_memory, write_memory};
pub use remote::{FOLLOW_CHILDREN, Remote, SCRATCH_DATA, SCRATCH_SIZE, Scratch, find_kernel_entry};
pub use thread::{
    LARGEST_SET, RunningThread, SIGINFO, StopReport, StoppedThread, deliver, wait, wait_any,
    wait_for,
};
pub use vdso::Vdso;
