//! `ckptd farm exec`: a task in place of a command.

use super::Context;
use super::logs::Stream;
use super::open;
use super::patience::Patience;
use crate::cli::SubmitArguments;
use crate::failure::Failure;
use crate::farm::{self, Ends, FarmFolder};
use crate::interrupts::Interrupts;
use ckptd_farm::{Task, Verdict};
use std::io;
use std::time::Duration;

/// The exit status after signal N is N more, as a shell has it.
const SIGNALLED: u8 = 128;
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);

/// Submits a task and passes on what it writes; its exit status.
pub fn perform(context: &Context, arguments: SubmitArguments) -> Result<u8, Failure> {
    // A signal that comes while the task is being submitted ends that task.
    let mut interrupts = Interrupts::hold()?;
    let (folder, task) = open::add(context, arguments)?;
    open::begin(&folder, task);
    match follow(&folder, task, &mut interrupts) {
        Ok(Followed::Ended(verdict)) => Ok(farm::status(verdict)),
        Ok(Followed::Interrupted(signal)) => {
            drop(interrupts);
            open::cancel(context, folder.name(), &[task.0])?;
            Ok(SIGNALLED.saturating_add(signal))
        }
        Err(error) => {
            if matches!(error, Failure::Output(_)) {
                // Nobody reads what it writes: a command would be ended by that, too.
                open::cancel(context, folder.name(), &[task.0])?;
            }
            Err(error)
        }
    }
}

/// What it has come to.
enum Followed {
    Ended(Verdict),
    Interrupted(u8),
}

fn follow(
    folder: &FarmFolder,
    task: Task,
    interrupts: &mut Interrupts,
) -> Result<Followed, Failure> {
    let [mut out, mut err] = Stream::both(folder, task);
    let mut ends = Ends::of(folder);
    let mut patience = Patience::new(true);
    loop {
        if let Some(signal) = interrupts.came() {
            return Ok(Followed::Interrupted(signal));
        }
        let is_running = folder.is_running();
        // What was written before it had ended is read after that.
        ends.read()?;
        out.pass(&mut io::stdout().lock()).map_err(Failure::Output)?;
        err.pass(&mut io::stderr().lock()).map_err(Failure::Output)?;
        if let Some(end) = ends.end(task) {
            return Ok(Followed::Ended(end.tried.verdict));
        }
        patience.look(folder, is_running, || format!("task {}", task.0))?;
        std::thread::sleep(LOOK);
    }
}
