//! Taking over an instance whose agent has ended.

use crate::sys::standing::acts_for_all;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::cluster::InstanceKey;

use super::instance::{Instance, LOOK_AGAIN, PATIENCE};
use super::job::Job;
use super::streams::console;
use super::types::{Started, TakenOver};
use super::{Requests, SessionError};
use crate::error::EngineError;
use crate::graph::OuterEnd;
use crate::job_init::{Channel, Introduction, Report, init_socket};
use crate::proc::{descendants, read_text};

/// How long the kernel may take to let go what an agent that was killed had stopped.
const SETTLE: Duration = Duration::from_secs(2);

/// Takes an instance over.
///
/// # Errors
/// As [`super::Session::take_over`].
pub fn take_over(
    path: &Path,
    expected: Option<&InstanceKey>,
    requests: Requests,
) -> Result<(Job, TakenOver), SessionError> {
    let unreachable = |source| SessionError::Unreachable { path: path.to_owned(), source };
    let socket = init_socket::connect(path).map_err(unreachable)?;
    let peer = init_socket::peer(&socket).map_err(unreachable)?;
    if peer.uid != nix::unistd::geteuid().as_raw() && !acts_for_all() {
        return Err(SessionError::Foreign { path: path.to_owned(), uid: peer.uid });
    }
    socket.set_read_timeout(Some(PATIENCE)).map_err(unreachable)?;
    let channel = Channel::new(socket);
    let (report, descriptors) = channel.receive::<Report>()?;
    let Report::Introduction(introduction) = report else {
        return Err(SessionError::OutOfOrder("did not introduce itself"));
    };
    let introduction = *introduction;
    if expected.is_some_and(|expected| *expected != introduction.identity) {
        return Err(SessionError::OutOfOrder("is another one than was looked for"));
    }
    let mut outer = Vec::new();
    for _ in 0..introduction.outer {
        outer.push(outer_end(&channel)?);
    }
    channel.socket().set_read_timeout(None).map_err(unreachable)?;
    let mut warnings = introduction.warnings.clone();
    wait_let_go(peer.pid, introduction.held, &mut warnings)?;
    build(introduction, &channel, (peer.pid, path), descriptors, outer, warnings, requests)
}

fn outer_end(channel: &Channel) -> Result<(OuterEnd, OwnedFd), SessionError> {
    match channel.receive::<Report>()? {
        (Report::Outer { end }, descriptors) => descriptors
            .into_iter()
            .next()
            .map(|fd| (end, fd))
            .ok_or(SessionError::OutOfOrder("sent an end without its descriptor")),
        _ => Err(SessionError::OutOfOrder("did not send all ends")),
    }
}

fn build(
    introduction: Introduction,
    channel: &Channel,
    (init, socket): (i32, &Path),
    descriptors: Vec<OwnedFd>,
    outer: Vec<(OuterEnd, OwnedFd)>,
    warnings: Vec<String>,
    requests: Requests,
) -> Result<(Job, TakenOver), SessionError> {
    let ends: Vec<_> = introduction.console.into_iter().zip(descriptors).collect();
    let mut instance = Instance::begin(channel, init, socket, requests)?;
    instance.over =
        introduction.empty || (introduction.root_instance && introduction.ended.is_some());
    let job =
        Job::taken_over(instance, init, introduction.root, &ends, &outer, introduction.keepsake)?;
    let taken = TakenOver {
        identity: introduction.identity,
        started: Started {
            init,
            root: introduction.root,
            console: console(ends),
            outer,
            moved: introduction.listeners,
            warnings,
        },
        held: introduction.held,
        lease_until_ns: introduction.lease_until_ns,
        touched: introduction.touched,
        ended: introduction.ended,
        empty: introduction.empty,
    };
    Ok((job, taken))
}

/// A tracer's end lets its tracees go and kills its snapshot processes, but only after its sockets have been closed:
/// waits until nothing of the job is traced, but by an init that holds it.
fn wait_let_go(init: i32, held: bool, warnings: &mut Vec<String>) -> Result<(), EngineError> {
    let begun = Instant::now();
    loop {
        let Some((pid, tracer)) = traced(init, held)? else { return Ok(()) };
        if begun.elapsed() > SETTLE {
            // A debugger of the user's: the job runs, and a checkpoint will say so again.
            warnings.push(format!("process {pid} of the job is traced by process {tracer}"));
            return Ok(());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A process of the job with its tracer, as this machine numbers them.
fn traced(init: i32, held: bool) -> Result<Option<(i32, i32)>, EngineError> {
    for pid in descendants(init)? {
        let Some(status) = read_text(&format!("/proc/{pid}/status"))? else { continue };
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"))
            .and_then(|rest| rest.trim().parse().ok())
            .unwrap_or(0);
        if tracer != 0 && !(held && tracer == init) {
            return Ok(Some((pid, tracer)));
        }
    }
    Ok(None)
}
