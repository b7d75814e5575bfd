//! `ckptd farm exec`: a task in place of a command.

use super::Context;
use super::logs::Stream;
use super::open;
use super::outlook::Outlook;
use super::patience::Patience;
use crate::cli::SubmitArguments;
use crate::failure::Failure;
use crate::farm::{self, Ends, FarmFolder};
use crate::interrupts::Interrupts;
use crate::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND};
use ckptd_farm::{Task, Verdict};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The exit status after signal N is N more, as a shell has it.
const SIGNALLED: u8 = 128;
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);
/// How long what a cancelled task has written last may take to be passed on: perhaps nobody reads it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Submits a task and passes on what it writes; its exit status.
pub fn perform(context: &Context, arguments: SubmitArguments) -> Result<u8, Failure> {
    if open::is_within(context, &arguments.farm) {
        return Err(in_place(&arguments));
    }
    // A signal that comes while the task is being submitted ends that task.
    let mut interrupts = Interrupts::hold()?;
    let (folder, task) = open::add(context, arguments)?;
    let followed = follow_apart(folder.clone(), task)?;
    loop {
        if let Some(signal) = interrupts.came() {
            drop(interrupts);
            return cancelled(context, &folder, task, &followed, signal);
        }
        match followed.recv_timeout(LOOK) {
            Ok(Err(error @ Failure::Output(_))) => {
                drop(interrupts);
                // Nobody reads what it writes: a command would be ended by that, too.
                open::cancel(context, folder.name(), &[task.0])?;
                return Err(error);
            }
            Ok(followed) => return followed.map(farm::status),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::of(format!("wait for task {}", task.0), "its thread is gone"));
            }
        }
    }
}

/// Runs the command of a task that is one of this farm already: with a task of its own, it would take another slot while this
/// one waits for it, and a farm whose tasks all wait would wait for ever. Returns where it can't be run.
fn in_place(arguments: &SubmitArguments) -> Failure {
    let SubmitArguments { farm: name, timeout, retries, command: words, .. } = arguments;
    if timeout.is_some() || retries.is_some() {
        let text = "--timeout and --retries hold for tasks of their own";
        farm::say(&format!("warning: this is within a task of {name}, and {text}"));
    }
    let program = words.first().cloned().unwrap_or_default();
    let arguments: Vec<&OsString> = words.iter().skip(1).collect();
    let error = Command::new(&program).args(arguments).exec();
    let status = match error.kind() {
        io::ErrorKind::NotFound => EXIT_NOT_FOUND,
        _ => EXIT_NOT_EXECUTABLE,
    };
    Failure::Program { told: format!("run {}: {error}", Path::new(&program).display()), status }
}

/// A signal has come: ends the task, and waits for that; the exit status.
fn cancelled(
    context: &Context,
    folder: &FarmFolder,
    task: Task,
    followed: &Receiver<Result<Verdict, Failure>>,
    signal: u8,
) -> Result<u8, Failure> {
    let mut ends = Ends::of(folder);
    ends.read()?;
    if ends.end(task).is_none() {
        open::cancel(context, folder.name(), &[task.0])?;
    }
    // It has been cancelled, whatever comes of its output.
    let _ = followed.recv_timeout(LAST_WORDS);
    Ok(SIGNALLED.saturating_add(signal))
}

/// Follows a task in a thread of its own: whatever that has to wait for, such as a pipe that nobody reads, a signal is heard.
fn follow_apart(
    folder: FarmFolder,
    task: Task,
) -> Result<Receiver<Result<Verdict, Failure>>, Failure> {
    let (tell, followed) = channel();
    let run = move || {
        open::begin(&folder, task);
        // Nobody listens any more where a signal has come.
        let _ = tell.send(follow(&folder, task));
    };
    let thread = std::thread::Builder::new().name("follows".to_owned()).spawn(run);
    thread.map(|_| followed).map_err(|error| Failure::of("start a thread", error))
}

fn follow(folder: &FarmFolder, task: Task) -> Result<Verdict, Failure> {
    let [mut out, mut err] = Stream::all(folder, task);
    let mut ends = Ends::of(folder);
    let mut outlook = Outlook::of(folder);
    let mut patience = Patience::new(true);
    let name = || format!("task {}", task.0);
    loop {
        let is_running = folder.is_running();
        // What was written before it had ended is read after that.
        ends.read()?;
        let is_all = out.pass(&mut io::stdout().lock()).map_err(Failure::Output)?
            & err.pass(&mut io::stderr().lock()).map_err(Failure::Output)?;
        if !is_all {
            continue;
        }
        if let Some(end) = ends.end(task) {
            return Ok(end.tried.verdict);
        }
        outlook.look(name)?;
        if outlook.is_stuck(task) {
            return Err(outlook.failure(task, name()).into());
        }
        patience.look(folder, is_running, name)?;
        std::thread::sleep(LOOK);
    }
}
