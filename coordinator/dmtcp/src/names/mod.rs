//! ckptd called by one of DMTCP's names: DMTCP's options and environment, the native engine.
//!
//! A job is one worker of a coordinator that speaks DMTCP's protocol, ours or DMTCP's own: it reaches the barriers
//! of a checkpoint like any worker, takes its own checkpoint between them, and tells the name of a small file, its
//! *image*, that says which job and checkpoint it is.
//!
//! - `options`: what all of them take.
//! - `command`, `coordinator`, `launch`, `restart`: a file a name.
//! - `bridge`: the job as a worker.
//! - `image`: the small file.

mod bridge;
mod command;
mod coordinator;
mod error;
mod image;
mod launch;
mod options;
mod restart;

pub use error::NativeError;
pub use image::Pointer;

use protocol::cluster::client::{Answer, Ask as Question};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Exit status where DMTCP itself failed, unless DMTCP_FAIL_RC is another.
const EXIT_DMTCP: u8 = 99;

/// What is to be done with a job's folder when it begins.
pub type Begins = Box<dyn FnOnce(&Path)>;

/// Asks who runs the job with that folder, which may just be beginning.
pub type Ask = fn(&Path, &Question) -> Result<Answer, NativeError>;

/// What the names need of ckptd. Texts of errors fit after "failed to ...".
pub trait Native {
    /// How jobs are asked.
    fn ask(&self) -> Ask;

    /// Runs a command as a job whose checkpoints the coordinator orders; its exit status.
    ///
    /// # Errors
    /// Why not.
    fn run(&self, command: Vec<OsString>, begins: Begins) -> Result<u8, NativeError>;

    /// Restarts a job from a checkpoint; its exit status.
    ///
    /// # Errors
    /// Why not.
    fn restart(&self, image: &Pointer, begins: Begins) -> Result<u8, NativeError>;

    /// A program of an installed DMTCP.
    fn program(&self, name: &str) -> Option<PathBuf>;

    /// Shows on standard error what happens in this process.
    fn tell_what_happens(&self);
}

/// The exit status by which a failure of DMTCP's is told from the program's own.
fn failed() -> u8 {
    let asked = std::env::var("DMTCP_FAIL_RC").ok().and_then(|text| text.parse().ok());
    asked.filter(|status| *status != 0).unwrap_or(EXIT_DMTCP)
}

/// Does what the name says that ckptd was called by; None where it is none of DMTCP's.
pub fn called(native: &dyn Native) -> Option<u8> {
    let mut arguments = std::env::args_os();
    let name = PathBuf::from(arguments.next()?);
    let arguments: Vec<OsString> = arguments.collect();
    match name.file_name()?.to_str()? {
        "dmtcp_command" => Some(command::perform(&arguments)),
        "dmtcp_coordinator" => Some(coordinator::perform(native, &arguments)),
        "dmtcp_launch" => Some(launch::perform(native, &arguments)),
        "dmtcp_restart" => Some(restart::perform(native, &arguments)),
        _ => None,
    }
}
