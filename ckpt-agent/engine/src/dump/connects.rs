//! Threads that were stopped in connect(2) after the connection had been made, and before they heard so. A live one makes
//! the call again and hears it then (net/ipv4/af_inet.c, __inet_stream_connect: SS_CONNECTING). The socket of an image is
//! connected by the restore, for which the kernel has nothing to say but EISCONN: so the thread of the image makes a
//! call that does nothing, and whose result is the 0 that it has to hear.

use super::super::arch::{Call, calls};
use super::super::graph::{Descriptor, OpenFile};
use super::super::objects::Object;
use super::super::trace::ProcessMemory;

/// The call that a thread of an image makes instead of the one in which it was stopped. `None`: the same.
///
/// A socket that was refused meanwhile becomes one that asks again: the network has the answer.
pub fn instead(
    call: &Call,
    descriptors: &[Descriptor],
    files: &mut [OpenFile],
    memory: &mut ProcessMemory,
) -> Option<Call> {
    let fd = calls::connects(call, memory)?;
    let file = descriptors.iter().find(|descriptor| descriptor.fd == fd)?.file;
    let Object::TcpSocket(socket) = &mut files.get_mut(file.0 as usize)?.object else {
        return None;
    };
    let was_made = socket.hear_of_connect();
    was_made.then(|| Call::of(libc::SYS_sched_yield, [0; 6]))
}
