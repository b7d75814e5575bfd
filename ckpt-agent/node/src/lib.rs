//! What a node of a cluster decides: a state machine without I/O. Events go in, actions come out; no file,
//! clock, process, thread or lookup is in here, and nothing of them can be, since this crate has none to call.
//!
//! - [`Node`]: the state and its transitions, one file for each concern.
//! - [`Event`]: what happened, with everything that had to be read for it.
//! - [`Action`]: what is to be done, in this order.
//!
//! The agent's driver performs the actions with real processes, files and connections; the coordinator's
//! simulation performs the same ones in a simulated world.

#![forbid(unsafe_code)]

mod action;
mod battery;
mod console;
mod ends;
mod event;
mod lacking;
mod lease;
mod names;
mod node;
mod record;

pub use action::{Action, CopyImage, Ending, Kept, Kill, Launch, Restore, Tie};
pub use battery::{BatteryGuard, Charge};
pub use console::{ConsoleOrder, ConsoleReport, Keeps};
pub use ends::{End, RelayEvent, RelayOrder, RelayState};
pub use event::{Adopted, Call, Copied, Event, LineEvent, Made, Question};
pub use lacking::Lacking;
pub use lease::{BootTime, Lease};
pub use names::{is_job_id, shell_link};
pub use node::{Node, Own};
pub use protocol::agent::InstanceEvent;
pub use record::{FORMAT, Record};
