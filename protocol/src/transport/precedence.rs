//! Whose packets go first where they wait for the same network.

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4Tos, Ipv6TClass, Priority};
use tokio::net::TcpStream;

/// What is sent over a connection, beside what jobs send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precedence {
    /// Nothing goes before it.
    #[default]
    Equal,
    /// All else goes before it. It may take as long as it takes.
    Behind,
}

/// TC_PRIO_BULK (include/uapi/linux/pkt_sched.h): pfifo_fast(8) sends what has it once nothing else waits, fq(8) seldom
/// while something does. No privilege is needed up to 6 (socket(7), SO_PRIORITY).
const BULK: i32 = 2;
/// The code point for lower effort (RFC 8622) in the byte of which it is the upper six bits: switches that go by it send
/// such packets last.
const LOWER_EFFORT: i32 = 1 << 2;

impl Precedence {
    /// From now on. Where the kernel refuses a mark, packets are sent without it.
    pub(super) fn apply(self, stream: &TcpStream) {
        if self == Self::Equal {
            return;
        }
        let is_four = stream.peer_addr().is_ok_and(|peer| peer.is_ipv4());
        let marked = match is_four {
            true => setsockopt(stream, Ipv4Tos, &LOWER_EFFORT),
            false => setsockopt(stream, Ipv6TClass, &LOWER_EFFORT),
        };
        // The mark of IPv4 sets the priority, too: to an ordinary one.
        let sent_last = setsockopt(stream, Priority, &BULK);
        if let Err(error) = marked.and(sent_last) {
            tracing::debug!(%error, "packets have no mark");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockopt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn packets_are_marked() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address).await else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            Precedence::Equal.apply(&stream);
            assert_eq!(getsockopt(&stream, Priority).unwrap(), 0);
            Precedence::Behind.apply(&stream);
            assert_eq!(getsockopt(&stream, Priority).unwrap(), BULK);
            let mark = match address.starts_with('[') {
                true => getsockopt(&stream, Ipv6TClass).unwrap(),
                false => getsockopt(&stream, Ipv4Tos).unwrap(),
            };
            assert_eq!(mark, LOWER_EFFORT);
        }
    }
}
