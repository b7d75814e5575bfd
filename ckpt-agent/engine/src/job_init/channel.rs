//! Messages between an agent and an init: length-prefixed JSON over a Unix stream socket, with
//! descriptors sent along.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message: an environment can be 2 MiB (execve(2)).
const LONGEST: u32 = 32 * 1024 * 1024;
/// Most descriptors with one message.
const MOST_DESCRIPTORS: usize = 4;

/// Why a message could not be carried.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side has ended.
    #[error("the other side of the job's init has ended")]
    Closed,
    /// A message that is too long.
    #[error("a message of {0} bytes is longer than {LONGEST}")]
    TooLong(u64),
    /// A message that is not understood.
    #[error("a message is not understood: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The socket failed.
    #[error("the socket to the job's init failed: {0}")]
    Socket(#[from] Errno),
}

/// One end of the socket.
#[derive(Debug)]
pub struct Channel {
    socket: UnixStream,
}

impl Channel {
    /// Over a connected socket.
    pub fn new(socket: UnixStream) -> Self {
        Self { socket }
    }

    /// The socket.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Gives the socket back.
    pub fn into_socket(self) -> UnixStream {
        self.socket
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn send(
        &self,
        message: &impl Serialize,
        descriptors: &[OwnedFd],
    ) -> Result<(), ChannelError> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len())
            .ok()
            .filter(|length| *length <= LONGEST)
            .ok_or(ChannelError::TooLong(body.len() as u64))?;
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let control = [ControlMessage::ScmRights(&raw)];
        let control = if raw.is_empty() { &control[..0] } else { &control[..] };
        let head = length.to_ne_bytes();
        let fd = self.socket.as_raw_fd();
        // The descriptors go with the head, which is short enough to be sent whole.
        retry(|| sendmsg::<()>(fd, &[IoSlice::new(&head)], control, MsgFlags::MSG_NOSIGNAL, None))?;
        let mut sent = 0;
        while sent < body.len() {
            let part = [IoSlice::new(&body[sent..])];
            sent += retry(|| sendmsg::<()>(fd, &part, &[], MsgFlags::MSG_NOSIGNAL, None))?;
        }
        Ok(())
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn receive<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        let fd = self.socket.as_fd();
        let mut head = [0; 4];
        let mut descriptors = Vec::new();
        {
            let mut space = nix::cmsg_space!([RawFd; MOST_DESCRIPTORS]);
            let mut vector = [IoSliceMut::new(&mut head)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_WAITALL;
            let message = loop {
                match recvmsg::<()>(fd.as_raw_fd(), &mut vector, Some(&mut space), flags) {
                    Err(Errno::EINTR) => {}
                    other => break other?,
                }
            };
            if message.bytes < 4 {
                return Err(ChannelError::Closed);
            }
            for control in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(received) = control {
                    // SAFETY: the kernel has just made these descriptors for us alone.
                    descriptors
                        .extend(received.iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }));
                }
            }
        }
        let length = u32::from_ne_bytes(head);
        if length > LONGEST {
            return Err(ChannelError::TooLong(u64::from(length)));
        }
        let mut body = vec![0; length as usize];
        let mut filled = 0;
        while filled < body.len() {
            match retry(|| nix::unistd::read(fd, &mut body[filled..]))? {
                0 => return Err(ChannelError::Closed),
                count => filled += count,
            }
        }
        Ok((protocol::json::read(&body)?, descriptors))
    }
}

fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_messages_and_descriptors() {
        let (left, right) = UnixStream::pair().unwrap();
        let (left, right) = (Channel::new(left), Channel::new(right));
        let sent = std::fs::File::open("/dev/null").unwrap();
        let long = "x".repeat(100_000);
        let sender = std::thread::spawn(move || {
            left.send(&long, &[sent.into()]).unwrap();
            left.send(&7, &[]).unwrap();
        });
        let (text, descriptors): (String, _) = right.receive().unwrap();
        assert_eq!((text.len(), descriptors.len()), (100_000, 1));
        assert_eq!(right.receive::<u32>().unwrap().0, 7);
        sender.join().unwrap();
        assert!(matches!(right.receive::<u32>(), Err(ChannelError::Closed)));
    }
}
