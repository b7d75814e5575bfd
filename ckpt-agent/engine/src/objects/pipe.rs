//! pipe(2): anonymous pipes. The ends that the job holds, what is in flight, and what became
//! of an end that the job does not hold.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{FileId, RelayEnd, RelayKind};
use super::super::sys::abi;
use super::pipe_content::{self, Content, Reader};
use super::reopen;
use super::{
    DumpContext, External, Fate, Found, Object, ObjectKind, Probe, RestoreContext, Saved, StdioRole,
};

/// In the number of a pipe whose other end is elsewhere: another one may be here under the same number.
const IDLE: u32 = 1 << 31;

/// An end of a pipe, or both (opened again for reading and writing).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipe {
    /// Descriptions with one number are ends of one pipe.
    pub pipe: u32,
    /// F_GETPIPE_SZ, bytes.
    pub size: i32,
    /// Who holds the end that the job does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Other>,
    /// What the agent holds of it for other instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayEnd>,
    /// What is in flight; kept with one end of each pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
}

/// Who holds a pipe's other end, where the job does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Other {
    /// Nobody: readers see the end of the file, writers a broken pipe.
    Nobody,
    /// The launcher, as this standard stream of the job.
    Launcher(StdioRole),
}

impl Pipe {
    /// Whether it is the job's standard input.
    pub fn is_job_input(&self) -> bool {
        self.other == Some(Other::Launcher(StdioRole::Stdin)) || self.is_shell_input()
    }

    /// Whether whoever reads it finds the end, as far as this description tells.
    pub fn is_at_end(&self) -> bool {
        self.other == Some(Other::Nobody) && self.content.is_none()
    }

    /// Whether the launcher reads it.
    pub fn is_job_output(&self) -> bool {
        matches!(self.other, Some(Other::Launcher(role)) if role != StdioRole::Stdin)
    }

    /// Whether the end that the job does not hold is nobody's, or the launcher's.
    pub fn is_one_sided(&self) -> bool {
        self.other.is_some() || self.is_shell_input()
    }

    /// As if the other end were closed.
    pub(super) fn become_idle(&mut self) {
        *self = Self {
            pipe: self.pipe | IDLE,
            size: self.size,
            other: Some(Other::Nobody),
            relays: Vec::new(),
            content: None,
        };
    }

    fn is_shell_input(&self) -> bool {
        self.relays.iter().any(RelayEnd::is_shell_input)
    }
}

impl ObjectKind for Pipe {
    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFIFO && probe.link.starts_with("pipe:[")
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        let size = pipe_content::capacity(probe.copy.as_fd())?;
        Ok(Self { pipe: 0, size, other: None, relays: Vec::new(), content: None })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        let mut pipes: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
        for (index, found) in all.iter().enumerate() {
            pipes.entry(found.probe.inode()).or_default().push(index);
        }
        let mut reader = Reader::default();
        for (number, (inode, ends)) in pipes.into_iter().enumerate() {
            let role = context.stdio.get(&inode).copied();
            let relays = context.relays_of(inode);
            let ends: Vec<&Found<'_, Self>> = ends.iter().filter_map(|i| all.get(*i)).collect();
            let Some(first) = ends.first() else { continue };
            let (id, probe) = (first.id, first.probe);
            let named = |error: EngineError| error.at(probe.pid, &probe.comm, probe.fd);
            let other = match relays.is_empty() {
                true => other(&ends, role, context).map_err(named)?,
                false => None,
            };
            let content = content(&ends, other, &mut reader, context).map_err(named)?;
            for found in all.iter_mut().filter(|found| found.probe.inode() == inode) {
                found.object.pipe = number as u32;
                found.object.other = other;
                found.object.relays.clone_from(&relays);
                if found.id == id {
                    found.object.content = content.clone();
                }
            }
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        let mut pipes: BTreeMap<u32, Vec<&Saved<'_, Self>>> = BTreeMap::new();
        for saved in all {
            pipes.entry(saved.object.pipe).or_default().push(saved);
        }
        for ends in pipes.into_values() {
            restore_one(&ends, context)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Again
    }
}

/// Finds out who holds the end that the job does not.
fn other(
    ends: &[&Found<'_, Pipe>],
    role: Option<StdioRole>,
    context: &mut DumpContext,
) -> Result<Option<Other>> {
    let reads = ends.iter().any(|end| reopen::readable(end.flags));
    let writes = ends.iter().any(|end| reopen::writable(end.flags));
    let Some(first) = ends.first() else { return Ok(None) };
    if !(reads && writes) && pipe_content::hung_up(first.probe.copy.as_fd())? {
        return Ok(Some(Other::Nobody));
    }
    // The job of which ckptd has not made the streams may have both sides of one.
    if let Some(role) = role.filter(|_| !(context.is_adopted && reads && writes)) {
        return Ok(Some(Other::Launcher(role)));
    }
    if reads && writes {
        return Ok(None);
    }
    let side = if reads { "written" } else { "read" };
    match context.external {
        External::Fail => Err(Refusal::new(
            format!("{} is {side} by a process outside of the job", first.probe.link),
            "start that process within the job, or use --external warn",
        )
        .into()),
        External::Warn => {
            context.warn(format!(
                "process {} ({}), descriptor {}: {} is {side} by a process outside of the job: \
                 a restart will show it as closed",
                first.probe.pid, first.probe.comm, first.probe.fd, first.probe.link
            ));
            Ok(Some(Other::Nobody))
        }
    }
}

/// Copies what is in flight, where somebody of the job may still read it. What the job has
/// written to its standard output is the launcher's already.
fn content(
    ends: &[&Found<'_, Pipe>],
    other: Option<Other>,
    reader: &mut Reader,
    context: &mut DumpContext,
) -> Result<Option<Content>> {
    if matches!(other, Some(Other::Launcher(StdioRole::Stdout | StdioRole::Stderr))) {
        return Ok(None);
    }
    let Some(end) = ends.iter().find(|end| reopen::readable(end.flags)) else {
        return Ok(None);
    };
    let packets =
        ends.iter().any(|end| reopen::writable(end.flags) && end.flags & libc::O_DIRECT != 0);
    reader.read(end.probe.copy.as_fd(), packets, context)
}

fn restore_one(ends: &[&Saved<'_, Pipe>], context: &mut RestoreContext) -> Result<()> {
    let first = ends.first().expect("a pipe is there by its ends");
    let (legs, home) = context.legs(first.id, &first.object.relays);
    let (read, write) = pipe_content::make(first.object.size, context)?;
    if home {
        if let Some(content) = content_of(first.object.pipe, context) {
            pipe_content::fill(write.as_fd(), content, context)?;
        }
    }
    // Each end of pipe2(2) becomes the first description of its kind; more of them, and those
    // for both directions, are opens of their own.
    let (mut read, mut write) = (Some(read), Some(write));
    let mut rest = Vec::new();
    for end in ends {
        let flags = end.file.flags;
        let made = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => &mut read,
            libc::O_WRONLY => &mut write,
            _ => &mut None,
        };
        match made.take() {
            Some(fd) => give(end.id, fd, flags, context)?,
            None => rest.push(*end),
        }
    }
    for end in rest {
        let model = ends.iter().find_map(|other| context.parked(other.id).ok());
        let model = model.or(read.as_ref().map(AsFd::as_fd)).or(write.as_ref().map(AsFd::as_fd));
        let fd = again(model, end.file.flags)?;
        give(end.id, fd, end.file.flags, context)?;
    }
    for leg in legs {
        let flags = match leg.kind {
            RelayKind::PipeRead => libc::O_RDONLY,
            _ => libc::O_WRONLY,
        };
        let model = ends.iter().find_map(|other| context.parked(other.id).ok());
        let fd = again(model, flags)?;
        reopen::set_status(fd.as_fd(), 0)?;
        context.hand_out(leg, fd)?;
    }
    match first.object.other {
        // Its input has one reader, as far as it comes apart.
        Some(Other::Launcher(StdioRole::Stdin)) if !home => Ok(()),
        other => hand_to_launcher(other, read, write, context),
    }
}

/// What is in flight in a pipe, whichever of its descriptions tells it.
fn content_of<'g>(pipe: u32, context: &RestoreContext<'g>) -> Option<&'g Content> {
    context.graph.files.iter().find_map(|file| match &file.object {
        Object::Pipe(other) if other.pipe == pipe => other.content.as_ref(),
        _ => None,
    })
}

fn again(model: Option<BorrowedFd<'_>>, flags: i32) -> Result<OwnedFd> {
    let model = model.ok_or_else(|| EngineError::Damaged("a pipe without ends".into()))?;
    reopen::reopen(model, flags | libc::O_NONBLOCK)
        .map_err(|errno| EngineError::system("open", "an end of a pipe", errno))
}

fn give(id: FileId, fd: OwnedFd, flags: i32, context: &mut RestoreContext) -> Result<()> {
    reopen::set_status(fd.as_fd(), flags)?;
    context.park(id, fd)
}

/// Gives the launcher its end; an end that nobody holds is closed by being dropped.
fn hand_to_launcher(
    other: Option<Other>,
    read: Option<OwnedFd>,
    write: Option<OwnedFd>,
    context: &mut RestoreContext,
) -> Result<()> {
    let Some(Other::Launcher(role)) = other else { return Ok(()) };
    let end = match role {
        StdioRole::Stdin => write,
        StdioRole::Stdout | StdioRole::Stderr => read,
        StdioRole::Terminal => None,
    };
    let Some(end) = end else { return Ok(()) };
    reopen::set_status(end.as_fd(), 0)?;
    let end = Some(context.lift(end)?);
    match role {
        StdioRole::Stdin => context.console.stdin = end,
        StdioRole::Stdout => context.console.stdout = end,
        StdioRole::Stderr => context.console.stderr = end,
        StdioRole::Terminal => {}
    }
    Ok(())
}
