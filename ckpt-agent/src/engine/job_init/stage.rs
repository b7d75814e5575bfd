//! From the fresh execution of this program to process 1, and process 1's life.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use protocol::launch::{RestoreSpec, WindowSize};

use super::super::error::{EngineError, Result};
use super::super::graph::{OuterEnd, Pid};
use super::super::objects::{RestoreContext, StdioRole};
use super::super::restore::{Image, restore};
use super::super::split::PartOrder;
use super::super::sys::tty;
use super::channel::Channel;
use super::{Order, Report, Task, launch, namespaces, reap};

/// The name (argv[0]) under which this program acts as a job's init. Its socket is descriptor 3.
pub const INIT_NAME: &str = "ckptd-init";
/// Where the agent has put the socket.
const SOCKET: i32 = 3;
/// Room for descriptors of the init itself above those of the job.
const OWN_DESCRIPTORS: u64 = 64;

/// Acts as init. To be called first thing in `main`, before any thread is made, by a process started
/// under [`INIT_NAME`]. Returns the exit status.
pub fn run() -> i32 {
    // SAFETY: the agent has put a socket there for us; nobody else in this fresh program knows it.
    let socket = unsafe { UnixStream::from_raw_fd(SOCKET) };
    let channel = Channel::new(socket);
    match stage(&channel) {
        Ok(status) => status,
        Err(error) => {
            let _ = channel.send(&Report::Failed(error.to_string()), &[]);
            1
        }
    }
}

fn system(call: &'static str, what: &str) -> impl Fn(nix::errno::Errno) -> EngineError {
    move |errno| EngineError::system(call, what, errno)
}

fn stage(channel: &Channel) -> Result<i32> {
    die_with_parent()?;
    let (order, _): (Order, _) =
        channel.receive().map_err(|error| EngineError::odd("order", error.to_string()))?;
    namespaces::enter(order.clocks)?;
    // Both write to the same socket: the child not before its parent has introduced it.
    let (introduced, done) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
        .map_err(system("pipe", "the job's init"))?;
    // SAFETY: this process is single-threaded, so the child may go on as ordinary code.
    match unsafe { fork() }.map_err(system("fork", "the job's init"))? {
        ForkResult::Parent { child } => {
            channel
                .send(&Report::Init(child.as_raw()), &[])
                .map_err(|error| EngineError::odd("report", error.to_string()))?;
            drop((introduced, done));
            // Stays only so that the init dies with the agent: by PR_SET_PDEATHSIG from link to link.
            release_streams()?;
            while let Err(nix::errno::Errno::EINTR) = waitpid(child, None) {}
            Ok(0)
        }
        ForkResult::Child => {
            drop(done);
            let mut nothing = [0];
            while nix::unistd::read(&introduced, &mut nothing) == Err(nix::errno::Errno::EINTR) {}
            drop(introduced);
            let status = match live(channel, order.task) {
                Ok(()) => 0,
                Err(error) => {
                    let _ = channel.send(&Report::Failed(error.to_string()), &[]);
                    1
                }
            };
            // The kernel kills whatever is left in the PID namespace.
            std::process::exit(status)
        }
    }
}

fn die_with_parent() -> Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(system("prctl", "PR_SET_PDEATHSIG"))
}

/// Process 1.
fn live(channel: &Channel, task: Task) -> Result<()> {
    // The namespaces have changed the credentials, which clears it (prctl(2)).
    die_with_parent()?;
    nix::unistd::setsid().map_err(system("setsid", "the job's init"))?;
    let mut warnings = namespaces::mount_own()?;
    let (root, console, outer) = match task {
        Task::Launch(spec) => {
            let (root, console) = launch::launch(&spec)?;
            (root.as_raw(), console, Vec::new())
        }
        Task::Restore { job_dir, spec, part } => {
            bring_back(&job_dir, &spec, part.as_ref(), &mut warnings)?
        }
    };
    release_streams()?;
    for (end, fd) in outer {
        if channel.send(&Report::Outer { end }, &[fd]).is_err() {
            return Ok(());
        }
    }
    let roles = console.iter().map(|(role, _)| *role).collect();
    let ends: Vec<OwnedFd> = console.into_iter().map(|(_, end)| end).collect();
    let report = Report::Ready { root, console: roles, warnings };
    if channel.send(&report, &ends).is_err() {
        return Ok(());
    }
    drop(ends);
    if let Some(status) = reap::until_end(root, channel).map_err(system("wait", "the job"))? {
        let _ = channel.send(&Report::Ended(status), &[]);
    }
    Ok(())
}

type Restored = (Pid, Vec<(StdioRole, OwnedFd)>, Vec<(OuterEnd, OwnedFd)>);

fn bring_back(
    job_dir: &Path,
    spec: &RestoreSpec,
    part: Option<&PartOrder>,
    warnings: &mut Vec<String>,
) -> Result<Restored> {
    let mut image = Image::open(job_dir, spec.checkpoint)?;
    let part = match part {
        Some(order) => image.take_part(order)?,
        None => image.take_part(&PartOrder::whole(&image.graph))?,
    };
    let first_free = image.highest_descriptor() + 1 + OWN_DESCRIPTORS as i32;
    raise_descriptor_limit(first_free as u64 + image.graph.files.len() as u64)?;
    let mut context = RestoreContext::new(&image.graph, &image, spec.force, first_free);
    context.part = Some(part);
    restore(&image, &mut context)?;
    let root = image.processes.contains_key(&image.graph.root).then_some(image.graph.root);
    let outer = std::mem::take(&mut context.outer);
    warnings.append(&mut context.warnings);
    let console = std::mem::take(&mut context.console);
    if let (Some(terminal), Some(window)) = (&console.terminal, spec.window) {
        let WindowSize { rows, columns, x_pixels, y_pixels } = window;
        let size = tty::WindowSize { rows, columns, width: x_pixels, height: y_pixels };
        tty::set_window_size(terminal, size)
            .map_err(|error| EngineError::system("ioctl", "the terminal's size", error))?;
    }
    let ends = [
        (StdioRole::Terminal, console.terminal),
        (StdioRole::Stdin, console.stdin),
        (StdioRole::Stdout, console.stdout),
        (StdioRole::Stderr, console.stderr),
    ];
    let ends = ends.into_iter().filter_map(|(role, end)| Some((role, end?))).collect();
    Ok((root.unwrap_or(0), ends, outer))
}

/// Descriptors of the job below, parked ones above: the soft limit must allow both.
fn raise_descriptor_limit(needed: u64) -> Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let failed = system("setrlimit", "open files");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(&failed)?;
    let wanted = needed + OWN_DESCRIPTORS;
    if wanted > hard {
        if setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted).is_ok() {
            return Ok(());
        }
        return Err(EngineError::Unfit {
            what: format!("the job needs {wanted} open files, the hard limit is {hard}"),
            way_out: "raise it (ulimit -Hn)".into(),
        });
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard), hard).map_err(failed)
}

/// The job's streams are the job's: whoever waits for their end must not wait for its init.
fn release_streams() -> Result<()> {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| EngineError::system("open", "/dev/null", error))?;
    for number in 0..3 {
        // SAFETY: takes numbers only; standard streams of a process that prints nothing any more.
        unsafe { libc::dup2(null.as_raw_fd(), number) };
    }
    Ok(())
}
