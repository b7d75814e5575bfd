//! `ckptd demo`: the loss of a machine and what becomes of a job, on three machines made of namespaces.
//!
//! - here: the process that the user has started. It only waits, so that whatever ends it ends all.
//! - `stage`: the namespaces around everything; their end is the end of all that was started.
//! - `play`: what is shown, step by step, from inside of them.
//! - `machines`, `inside`: machines, seen from outside and from inside.
//! - `daemons`: the coordinator, and what is asked of it. `job`: the job, as 'ckptd run' shows it.
//! - `program`, `queens`: the job's own program, and what it computes.
//! - `picture`: who is where, as text.
//! - `error`: what can go wrong, with a way out.

mod daemons;
mod error;
mod inside;
mod job;
mod machines;
mod picture;
mod play;
mod program;
mod queens;
mod stage;

use crate::cli::DemoPart;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::{EXIT_FAILED, INNER_CALL};
use error::DemoError;
use nix::mount::{MsFlags, mount};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// User and group of agents that are not root's.
type Account = Option<(u32, u32)>;

/// As an option of a part.
fn account_option(account: Account) -> Vec<String> {
    let text = account.map(|(user, group)| format!("{user}:{group}"));
    text.into_iter().flat_map(|text| ["--account".to_owned(), text]).collect()
}

/// The commands of the parts.
const PART: &str = "demo-part";
/// Between two looks whether it has ended, or a signal has come.
const LOOK: Duration = Duration::from_millis(20);

/// Shows the demonstration; the exit status.
pub fn perform() -> Result<u8, Failure> {
    show().map_err(Failure::from)
}

/// Is one of its parts.
pub fn part(part: DemoPart) -> Result<u8, Failure> {
    let done = match part {
        DemoPart::Stage => stage::perform(),
        DemoPart::Play { folder, account } => play::perform(&folder, account).map(|()| 0),
        DemoPart::Machine { name, address, folder, account } => {
            // What goes wrong is told by whoever has started it.
            return Ok(inside::machine(&name, address, &folder, account));
        }
        DemoPart::First { folder, account } => return Ok(inside::first(&folder, account)),
        // A program like any other, which says so itself.
        DemoPart::Queens { machines } => return Ok(program::lead(&machines)),
        DemoPart::Worker { number, job } => return Ok(program::work(number, &job)),
    };
    done.map_err(Failure::from)
}

fn show() -> Result<u8, DemoError> {
    let mut interrupts = Interrupts::hold().map_err(|error| DemoError::Held(error.to_string()))?;
    let mut command = own("stage")?;
    command.stdin(Stdio::piped());
    command.env_remove("CKPTD_DIR").env_remove("CKPTD_NAMESPACES");
    // Signals stay held up in all that is behind it: they mean something here alone.
    let mut stage = command.spawn().map_err(DemoError::system("start a part of it"))?;
    let came = wait(&mut stage, &mut interrupts).map_err(DemoError::system("wait for it"))?;
    // The end of its input ends it, in whatever way this process ends.
    drop(stage.stdin.take());
    let status = stage.wait().map_err(DemoError::system("wait for it"))?;
    match came {
        Some(signal) => {
            eprintln!("\nckptd: the demonstration was interrupted; nothing of it is left");
            Ok(128 + signal)
        }
        None => Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_FAILED)),
    }
}

/// Until it has ended, or a signal has come: its number.
fn wait(stage: &mut Child, interrupts: &mut Interrupts) -> io::Result<Option<u8>> {
    while stage.try_wait()?.is_none() {
        if let Some(signal) = interrupts.came() {
            return Ok(Some(signal));
        }
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

/// This executable as one of the parts that show it: a terminal's signals come to them, too, and are held up.
fn own(part: &str) -> Result<Command, DemoError> {
    let mut command = ckptd()?;
    command.args([PART, part]);
    Ok(command)
}

/// This executable in a group of its own, to which no terminal sends signals.
fn apart() -> Result<Command, DemoError> {
    let mut command = ckptd()?;
    command.process_group(0).current_dir("/");
    Ok(command)
}

/// Has the processes of this PID namespace shown, and no others.
fn mount_proc() -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)
}

/// This executable, which reads no configuration.
fn ckptd() -> Result<Command, DemoError> {
    let own = std::env::current_exe().map_err(DemoError::system("find ckptd"))?;
    let mut command = Command::new(own);
    command.env(INNER_CALL, "1").stdin(Stdio::null());
    Ok(command)
}
