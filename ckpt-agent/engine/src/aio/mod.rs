//! Contexts of asynchronous input and output (io_setup(2)). A context belongs to the memory of a process, and its number is
//! the address of a ring that the process shares with the kernel.
//!
//! * `ring`: the ring as it lies in memory, and how large a new one becomes;
//! * `worker`: calls on a context in the process that has it: places taken and given back, the ring turned;
//! * `settle`: a dump makes sure that nothing is in flight;
//! * `make`: a restore makes contexts again.

mod make;
mod ring;
pub mod settle;
mod worker;

pub use make::make;
pub use ring::{EVENT, Head, MOST_PLACES, places_of, requests_for};
pub use settle::{Settled, check, settle};

use super::error::EngineError;
use super::graph::Pid;
use super::sys::processors;

/// Whether this machine can have a ring like this. One that does not say how many processors it may have is taken to.
pub fn fits(ring: Head, page: u64) -> bool {
    processors::possible().is_none_or(|processors| {
        requests_for(ring.places, processors, page).is_some()
            && ring.unread() < ring.places.saturating_sub(ring::left_over(ring.places, processors))
    })
}

/// Where it can't.
pub fn unfit(pid: Pid) -> EngineError {
    EngineError::Unfit {
        what: format!(
            "process {pid} has a context of asynchronous input and output that is too small for the many processors of \
             this machine"
        ),
        way_out: "restart it on a machine that may have no more processors than where it ran"
            .into(),
    }
}
