//! The agent's side of `ckptd rsh`: calls from inside of instances.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use protocol::transport::{Place, PlaceLimits, Places, bind};

use super::report::{Report, Reports};
use super::shell_call::{Caller, ReplyTo, SOCKET, ShellRequest};
use ckpt_engine::job_init::Channel;
use ckpt_engine::proc::ancestors;

/// Calls at a time, each a thread for as long as it takes to say what it wants.
const CALLS: PlaceLimits = PlaceLimits { all: 1024, each: 512, kept: 0 };
/// How long a caller may take to say what it wants.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// Listens for callers. Everybody may connect; who is not inside of an instance, or is another user than its own, is refused by
/// the node.
///
/// # Errors
/// As bind(2).
pub fn listen(dir: &Path, reports: Reports) -> io::Result<()> {
    let listener: UnixListener = bind(&dir.join(SOCKET), 0o666)?.into_std()?;
    listener.set_nonblocking(false)?;
    let places = Places::new(CALLS);
    std::thread::Builder::new().name("shells".into()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let Ok(peer) = getsockopt(&stream, PeerCredentials) else { continue };
            let Some(place) = places.enter(peer.uid(), false) else { continue };
            // Nobody could tell a thread that its place is another's now.
            place.secure();
            let reports = reports.clone();
            let serve = move |_place: Place<u32>| {
                if let Err(error) = serve(stream, &reports) {
                    tracing::debug!(%error, "a call of ckptd rsh");
                }
            };
            // Where no thread is to be had the caller tries again.
            let shell = std::thread::Builder::new().name("shell".into());
            drop(shell.spawn(move || serve(place)));
        }
    })?;
    Ok(())
}

fn serve(stream: UnixStream, reports: &Reports) -> io::Result<()> {
    let peer = getsockopt(&stream, PeerCredentials)?;
    let (pid, uid) = (peer.pid(), peer.uid());
    stream.set_read_timeout(Some(REQUEST_LIMIT))?;
    let channel = Channel::new(stream);
    let (request, descriptors) = channel.receive::<ShellRequest>().map_err(io::Error::other)?;
    let stream = channel.into_socket();
    stream.set_read_timeout(None)?;
    let [link, stdin, stdout, stderr]: [OwnedFd; 4] = descriptors
        .try_into()
        .map_err(|_| io::Error::other("a link and three streams were to come"))?;
    let streams = [stdin, stdout, stderr];
    let caller = Caller { pid, uid, request, link, streams, reply: ReplyTo::new(stream) };
    reports.tell(Report::Shell(Box::new(caller)));
    Ok(())
}

/// Whether a process is inside of the PID namespace of which `init` is the first process; where that is the machine's, whether it
/// descends from `init`.
#[must_use]
pub fn is_inside(pid: i32, init: i32) -> bool {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let inside = namespace(&pid.to_string());
    if inside.is_none() || inside != namespace(&init.to_string()) {
        return false;
    }
    // Orphans of an instance are its init's children.
    inside != namespace("self") || ancestors(pid).any(|above| above == init)
}
