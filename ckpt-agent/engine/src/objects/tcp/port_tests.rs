//! Several instances in one network whose sockets had the same port.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::super::socket_options::SocketOptions;
use super::super::testing::{Kept, dump, try_dump};
use super::super::{DumpContext, RestoreContext};
use super::make::{Address, Purpose, bound};
use super::tests::{pair_at, read_all_now, stream};

/// Instances at one time: more than there are processors, so that they meet between bind(2) and listen(2).
const INSTANCES: usize = 12;
const ROUNDS: usize = 25;

#[test]
fn instances_that_want_one_port_at_one_time_are_all_made() {
    let (listener, client, server) = pair_at("127.0.0.1:0");
    let context = DumpContext { cluster: true, ..DumpContext::default() };
    let dumped = try_dump(&[client.as_fd(), server.as_fd(), listener.as_fd()], context).unwrap();
    drop((client, server, listener));
    for round in 0..ROUNDS {
        let barrier = Barrier::new(INSTANCES);
        let instance = || {
            barrier.wait();
            let back = dumped.restore_with(|context| context.cluster = true);
            barrier.wait();
            let back = back.unwrap_or_else(|error| panic!("round {round}: {error}"));
            let (mut client, server) = (stream(&back.fds[0]), stream(&back.fds[1]));
            assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
            client.write_all(b"word").unwrap();
            assert_eq!(read_all_now(&server), b"word");
            let listener = TcpListener::from(back.fds[2].try_clone().unwrap());
            let third = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(listener.accept().unwrap().1, third.local_addr().unwrap());
        };
        std::thread::scope(|scope| {
            for _ in 0..INSTANCES {
                scope.spawn(instance);
            }
        });
    }
}

#[test]
fn a_port_that_is_lost_before_it_listens_is_left_for_one_that_nobody_can_take() {
    let reusing = |at: SocketAddr| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&at.into()).map(|()| socket)
    };
    let other = reusing("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = other.local_addr().unwrap().as_socket().unwrap();
    let graph = dump(&[]).graph();
    let kept = Kept(Vec::new());
    let mut context = RestoreContext::new(&graph, &kept, false, 512);
    context.cluster = true;
    for purpose in [Purpose::Temporary, Purpose::Listening] {
        let address = Address {
            v6: false,
            multipath: false,
            at: Some(at),
            options: SocketOptions::default(),
        };
        let mut tries = Vec::new();
        let socket = bound(&address, purpose, &mut context, |socket| {
            let own = socket.local_addr()?.as_socket().unwrap();
            tries.push(own);
            // Whoever else can have the port has it now.
            match own == at {
                true => other.listen(1)?,
                false => assert!(reusing(own).is_err(), "{own} can be taken"),
            }
            socket.listen(16)
        });
        let socket = socket.unwrap();
        let own = socket.local_addr().unwrap().as_socket().unwrap();
        assert!(own != at && own.ip() == at.ip() && tries.last() == Some(&own), "{tries:?}");
        assert!(SockRef::from(&socket).reuse_address().unwrap());
    }
    assert!(context.warnings.is_empty(), "{:?}", context.warnings);
}

#[test]
fn what_will_listen_shares_its_port_with_nobody() {
    let graph = dump(&[]).graph();
    let kept = Kept(Vec::new());
    let mut context = RestoreContext::new(&graph, &kept, false, 512);
    context.cluster = true;
    let at = Some("127.0.0.1:0".parse().unwrap());
    let address =
        |at| Address { v6: false, multipath: false, at, options: SocketOptions::default() };
    let purpose = Purpose::Idle { until: Instant::now() };
    let mut idle = |at| bound(&address(at), purpose, &mut context, |_| Ok(())).unwrap();
    let one = idle(at);
    let own = |socket: &Socket| socket.local_addr().unwrap().as_socket().unwrap();
    let other = idle(Some(own(&one)));
    assert_ne!(own(&one), own(&other));
    one.listen(1).unwrap();
    other.listen(1).unwrap();
}

/// A socket that is bound to a port of the kernel's choice and shares it with nobody.
fn passing() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let at = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, at)
}

/// A socket of a job on one machine that is bound to `at` and no more, and what is said of it.
fn bound_again(at: SocketAddr, until: Instant) -> (Socket, Vec<String>) {
    let graph = dump(&[]).graph();
    let kept = Kept(Vec::new());
    let mut context = RestoreContext::new(&graph, &kept, false, 512);
    let address =
        Address { v6: false, multipath: false, at: Some(at), options: SocketOptions::default() };
    let socket = bound(&address, Purpose::Idle { until }, &mut context, |_| Ok(())).unwrap();
    (socket, context.warnings)
}

#[test]
fn a_port_that_a_passing_connection_has_is_waited_for() {
    let (passing, at) = passing();
    let far = Instant::now() + Duration::from_secs(600);
    std::thread::scope(|scope| {
        let again = scope.spawn(|| bound_again(at, far));
        std::thread::sleep(Duration::from_millis(100)); // Time in which it could take another one.
        drop(passing);
        let (socket, warnings) = again.join().unwrap();
        assert_eq!(socket.local_addr().unwrap().as_socket(), Some(at));
        assert!(warnings.is_empty(), "{warnings:?}");
    });
}

#[test]
fn a_port_that_is_lost_is_said_to_be() {
    let (_held, at) = passing();
    let (socket, warnings) = bound_again(at, Instant::now());
    let now = socket.local_addr().unwrap().as_socket().unwrap();
    assert_ne!(now, at);
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(warning.contains(&at.to_string()) && warning.contains(&now.to_string()), "{warning}");
}
