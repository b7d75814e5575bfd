//! Brings a job, or a part of it, back from its image.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use protocol::cluster::agent::MovedListener;
use protocol::launch::{RestoreSpec, WindowSize};

use super::super::demand::Feeder;
use super::super::error::{EngineError, Result};
use super::super::graph::{OuterEnd, Pid};
use super::super::late::{Connecting, Installed, NamedSocket};
use super::super::objects::{RestoreContext, StdioRole};
use super::super::restore::{
    Image, Standing, highest_descriptor, own_stack, refuse_rehearsal, restore,
};
use super::super::split::PartOrder;
use super::super::sys::{limits, tty};
use super::UserOrder;
use super::connections::Connections;
use super::rehearsal::{self, Rehearsal};
use super::rights;
use super::stages::{self, Stage};

/// Where the stack begins among the fields of struct prctl_mm_map (prctl(2)).
const START_STACK: usize = 6;
/// Room for descriptors of the init itself above those of the job.
const OWN_DESCRIPTORS: u64 = 64;

/// A job that is there.
pub struct Begun {
    /// Its first process; `None`: it is not in this instance.
    pub root: Option<Pid>,
    /// The launcher's ends of its streams.
    pub console: Vec<(StdioRole, OwnedFd)>,
    /// The agent's ends of relays.
    pub outer: Vec<(OuterEnd, OwnedFd)>,
    /// Its listening TCP sockets.
    pub moved: Vec<MovedListener>,
    /// What single sockets are called.
    pub names: Vec<NamedSocket>,
    /// Connections that were being made.
    pub connecting: Vec<Connecting>,
    /// Where its processes' stacks begin.
    pub stacks: HashSet<u64>,
    /// Its calls for late connections wait for answers.
    pub watched: Option<Installed>,
    /// It stands still.
    pub standing: Option<Standing>,
}

/// What an instance is among others.
#[derive(Debug, Clone, Copy, Default)]
pub struct Among<'a> {
    /// There are other instances.
    pub cluster: bool,
    /// Late connections are to be watched.
    pub watch: bool,
    /// Other parts of this one are on this machine as well.
    pub crowded: bool,
    /// It is never to run: nothing may come to know of it.
    pub rehearsal: Option<&'a Rehearsal>,
    /// Leads to what can fill memory while the job runs.
    pub pager: Option<&'a UnixStream>,
}

/// Rebuilds it up to the moment before it runs.
///
/// # Errors
/// As [`restore`].
pub fn bring_back(
    job_dir: &Path,
    spec: &RestoreSpec,
    part: Option<&PartOrder>,
    connections: Connections,
    among: Among<'_>,
    user: Option<&UserOrder>,
    warnings: &mut Vec<String>,
) -> Result<Begun> {
    let opening = stages::begin(Stage::Image);
    let (mut image, mut processes) = Image::open(job_dir, spec.checkpoint)?;
    let part = match part {
        Some(order) => image.take_part(&mut processes, order)?,
        None => image.take_part(&mut processes, &PartOrder::whole(&image.graph))?,
    };
    drop(opening);
    if let Some(user) = user {
        rights::check_user(&image, &processes, user)?;
    }
    if let Some(rehearsal) = among.rehearsal {
        refuse_rehearsal(&image.graph.files)?;
        rehearsal::shield(&image, &processes, rehearsal.own_files(), user)?;
    }
    let first_free = highest_descriptor(&processes) + 1 + OWN_DESCRIPTORS as i32;
    let crowded = raise_descriptor_limit(first_free as u64, image.graph.files.len() as u64)?;
    let mut context = RestoreContext::new(&image.graph, &image, spec.force, first_free);
    if crowded {
        context.park_from = OWN_DESCRIPTORS as i32;
    }
    context.file_check = spec.file_check.unwrap_or(context.file_check);
    context.part = Some(part);
    context.user = user.cloned();
    context.cluster = among.cluster;
    context.watch = among.watch;
    context.crowded = among.crowded;
    context.rehearsal = among.rehearsal.is_some();
    for (file, connection) in connections.made {
        let connection = context.lift(connection)?;
        context.connections.insert(file, connection);
    }
    for (end, far) in connections.absent {
        context.hand_out(end, far)?;
    }
    let mut stacks: HashSet<u64> =
        processes.values().map(|process| process.memory_map[START_STACK]).collect();
    // Where the kernel can't be told, it shows this process's for each of them.
    stacks.insert(own_stack()?);
    let root = Some(image.graph.root).filter(|root| processes.contains_key(root));
    if let Some(pager) = among.pager {
        let copy =
            pager.try_clone().map_err(|error| EngineError::system("dup", "a socket", error))?;
        let socket = UnixStream::from(context.lift(copy.into())?);
        context.feeder = Some(Feeder::begin(socket, job_dir, spec.checkpoint)?);
    }
    let restored = restore(&image, processes, &mut context);
    // What a process waited for in vain may be why it is no more.
    let standing = restored
        .map_err(|error| context.feeder.as_mut().and_then(Feeder::failure).unwrap_or(error))?;
    // Of memory that is all there nobody waits for anything.
    context.feeder = None;
    warnings.append(&mut context.warnings);
    let console = std::mem::take(&mut context.console);
    if let (Some(terminal), Some(window)) = (&console.terminal, spec.window) {
        resize(terminal, window)?;
    }
    let ends = [
        (StdioRole::Terminal, console.terminal),
        (StdioRole::Stdin, console.stdin),
        (StdioRole::Stdout, console.stdout),
        (StdioRole::Stderr, console.stderr),
    ];
    Ok(Begun {
        root: root.and_then(|root| standing.here(root)),
        console: ends.into_iter().filter_map(|(role, end)| Some((role, end?))).collect(),
        outer: std::mem::take(&mut context.outer),
        moved: std::mem::take(&mut context.moved),
        names: std::mem::take(&mut context.names),
        connecting: std::mem::take(&mut context.connecting),
        stacks,
        watched: context.watched.take(),
        standing: Some(standing),
    })
}

fn resize(terminal: &OwnedFd, window: WindowSize) -> Result<()> {
    let WindowSize { rows, columns, x_pixels, y_pixels } = window;
    let size = tty::WindowSize { rows, columns, width: x_pixels, height: y_pixels };
    tty::set_window_size(terminal, size)
        .map_err(|error| EngineError::system("ioctl", "the terminal's size", error))
}

/// Descriptors of the job below, parked ones above: the soft limit must allow both. Where the hard one does not, the
/// two have to lie among each other: whether that is so.
fn raise_descriptor_limit(first_free: u64, files: u64) -> Result<bool> {
    use nix::sys::resource::Resource;
    let failed = |errno| EngineError::system("setrlimit", "open files", errno);
    let (soft, hard) = limits::own(Resource::RLIMIT_NOFILE).map_err(failed)?;
    let beside = first_free + files + OWN_DESCRIPTORS;
    if beside > hard && limits::set_own(Resource::RLIMIT_NOFILE, beside, beside).is_ok() {
        return Ok(false);
    }
    let wanted = first_free.max(files + OWN_DESCRIPTORS) + OWN_DESCRIPTORS;
    if wanted > hard {
        return Err(EngineError::Unfit {
            what: format!("the job needs {wanted} open files, the hard limit is {hard}"),
            way_out: "raise it (ulimit -Hn)".into(),
        });
    }
    limits::set_own(Resource::RLIMIT_NOFILE, soft.max(hard), hard).map_err(failed)?;
    Ok(beside > hard)
}
