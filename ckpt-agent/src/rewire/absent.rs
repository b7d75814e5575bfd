//! Connections whose peer has departed: both ends are made here, on the loopback. What the job's end had not
//! read lies in its queue again; the other one is the agent's.

use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::room::Widened;

/// Limit for the bytes to be back.
const LIMIT: Duration = Duration::from_secs(5);
/// Limit for a connection within this machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// A connection without a peer.
#[derive(Debug, Clone, Default)]
pub struct AbsentOrder {
    /// The job's socket is of AF_INET6.
    pub v6: bool,
    /// Bytes that must lie unread at the job's end.
    pub queue: Vec<u8>,
    /// The job had called shutdown(2) SHUT_WR at its end.
    pub shut_write: bool,
    /// The peer had done so, or closed.
    pub peer_shut: bool,
}

/// Makes one: the job's end and ours. Blocks.
///
/// # Errors
/// Failed system calls; the bytes do not fit.
pub fn without_peer(order: &AbsentOrder) -> io::Result<(OwnedFd, OwnedFd)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    // Addresses that are IPv4-mapped need no IPv6 on the machine's interfaces.
    let target: SocketAddr = match order.v6 {
        true => (Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port).into(),
        false => (Ipv4Addr::LOCALHOST, port).into(),
    };
    let native = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
    if order.v6 {
        native.set_only_v6(false)?;
    }
    native.connect_timeout(&SockAddr::from(target), CONNECT_LIMIT)?;
    let own = native.local_addr()?.as_socket().map(|address| address.port());
    let far = loop {
        // Strangers may have been faster.
        let (stream, from) = listener.accept()?;
        if Some(from.port()) == own {
            break stream;
        }
    };
    fill(&native, &far, &order.queue)?;
    if order.shut_write {
        native.shutdown(Shutdown::Write)?;
    }
    if order.peer_shut {
        far.shutdown(Shutdown::Write)?;
    }
    Ok((native.into(), far.into()))
}

fn fill(native: &Socket, far: &TcpStream, queue: &[u8]) -> io::Result<()> {
    if queue.is_empty() {
        return Ok(());
    }
    let widened = Widened::for_bytes(native, queue.len());
    far.set_nodelay(true)?;
    far.set_nonblocking(true)?;
    let deadline = Instant::now() + LIMIT;
    let mut rest = queue;
    while !rest.is_empty() || !arrived(native, queue.len())? {
        match (&mut &*far).write(rest) {
            Ok(length) => rest = &rest[length..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if Instant::now() > deadline {
            let said = format!("{} bytes in flight do not fit", queue.len());
            return Err(io::Error::new(ErrorKind::TimedOut, said));
        }
        if rest.is_empty() && arrived(native, queue.len())? {
            break;
        }
        widened.offer(native);
        std::thread::sleep(PAUSE);
    }
    widened.give_back(native);
    far.set_nonblocking(false)
}

fn arrived(native: &Socket, bytes: usize) -> io::Result<bool> {
    Ok(ckpt_engine::sys::sockopt::readable(native)? >= bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn streams(order: &AbsentOrder) -> (TcpStream, TcpStream) {
        let (native, far) = without_peer(order).unwrap();
        (native.into(), far.into())
    }

    #[test]
    fn what_was_not_read_is_there_and_then_there_is_silence() {
        for v6 in [false, true] {
            let queue: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
            let order = AbsentOrder { v6, queue: queue.clone(), ..AbsentOrder::default() };
            let (mut native, mut far) = streams(&order);
            assert_eq!(native.local_addr().unwrap().is_ipv6(), v6);
            let mut found = vec![0; queue.len()];
            native.read_exact(&mut found).unwrap();
            assert_eq!(found, queue);
            native.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let silence = native.read(&mut [0]).unwrap_err();
            assert_eq!(silence.kind(), ErrorKind::WouldBlock);
            native.write_all(b"word").unwrap();
            let mut word = [0; 4];
            far.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"word");
        }
    }

    #[test]
    fn ends_that_were_known_are_known_again() {
        let order = AbsentOrder { queue: b"last".to_vec(), peer_shut: true, ..Default::default() };
        let (mut native, _far) = streams(&order);
        let mut found = Vec::new();
        native.read_to_end(&mut found).unwrap();
        assert_eq!(found, b"last");
        let (_native, mut far) = streams(&AbsentOrder { shut_write: true, ..Default::default() });
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}
