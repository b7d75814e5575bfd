use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

use super::super::super::error::EngineError;
use super::super::super::sys::restrained::Restrained;
use super::super::DumpContext;
use super::super::testing::{dump, try_dump};

/// A raw socket of a protocol that nobody uses, where this process may have one.
fn raw() -> Option<Socket> {
    Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(201))).ok()
}

#[test]
fn a_raw_socket_returns_to_those_who_may_have_it() {
    let Some(socket) = raw() else { return };
    socket.set_ttl_v4(7).unwrap();
    let dumped = dump(&[socket.as_fd()]);
    drop(socket);
    let back = dumped.restore();
    let again = dump(&[back.fds[0].as_fd()]);
    assert_eq!(
        serde_json::to_string(&again.files).unwrap(),
        serde_json::to_string(&dumped.files).unwrap()
    );
    let _acting = Restrained::begin(&[]).unwrap();
    let refused = dumped.try_restore().map(drop).unwrap_err();
    assert!(matches!(&refused, EngineError::Unfit { .. }), "{refused}");
}

#[test]
fn what_is_not_read_yet_is_waited_for() {
    let Some(socket) = raw() else { return };
    let address: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.send_to(b"one", &address.into()).unwrap();
    let refused = try_dump(&[socket.as_fd()], DumpContext::default()).map(drop).unwrap_err();
    assert!(refused.passes(), "{refused}");
    socket.recv(&mut [std::mem::MaybeUninit::uninit(); 64]).unwrap();
    dump(&[socket.as_fd()]);
}
