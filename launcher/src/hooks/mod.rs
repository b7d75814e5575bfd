//! `--on EVENT=COMMAND`: commands that are called, and servers that are told, when something happens to a job.
//!
//! A process of the user's own calls them, on the machine where the job was run: only there are the user's rights,
//! environment and files. It has no terminal and no signals of the job's, so it never holds the job up, and outlives a
//! launcher that is killed. Of a job on this machine alone its launcher tells it what happens, by notes that are left out
//! where nobody takes them. On a cluster it asks the coordinator, which numbers what happens to a job in the order of its
//! log: the job outlives its launcher there, and the coordinator each of its own processes.
//!
//! - `hook`: an event and a command.
//! - `queue`: which command is called when, and for how long, without I/O.
//! - `line`: what a command is told.
//! - `called`, `heard`: a command that runs, and what it says.
//! - `webhook`: what runs where a server is told.
//! - `note`: what the launcher tells the process.
//! - `source`: where the process hears of events.
//! - `said`: where it says something.
//! - `process`: what it does.
//! - `caller`: the launcher's side.

mod called;
mod caller;
mod heard;
mod hook;
mod line;
mod note;
mod process;
mod queue;
mod said;
mod source;
#[cfg(feature = "webhooks")]
mod webhook;

pub use caller::{Caller, Pending};
pub use hook::Hook;
pub use process::{Calling, perform};
#[cfg(feature = "webhooks")]
pub use webhook::perform as send_event;

use nix::sys::signal::Signal;

/// Variables in which the process that calls commands finds what is called, until one is not there: its arguments would show
/// all users what secrets there may be in it.
fn hook_variables() -> impl Iterator<Item = String> {
    (0_u32..).map(|number| format!("CKPTD_HOOK_{number}"))
}

/// Signals that are not for the process that calls commands; it is born with them blocked.
const HELD: [Signal; 3] = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT];
