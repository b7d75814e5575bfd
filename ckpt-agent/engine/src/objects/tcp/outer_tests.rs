//! Two instances in this process: the two ends of each connection are dumped by two threads, in
//! step, and restored through the agents' wire ports.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::super::super::graph::FileId;
use super::super::super::sys::sockopt;
use super::super::testing::{Dumped, Restored, dump_in_step, try_dump};
use super::super::{DumpContext, External};
use super::tests::{fill, pair_at, pattern, read_all_now, stream};
use super::{OuterSocket, outer_sockets};
use ckpt_agent::rewire::{Pair, Role, Secret, WireOrder, Wires, listen};
use protocol::agent::InstanceId;
use protocol::cluster::InstanceKey;

fn cluster() -> DumpContext {
    DumpContext { cluster: true, ..DumpContext::default() }
}

/// Dumps two instances at the same time; how long each took to come to rest.
fn dump_both(left: &[BorrowedFd<'_>], right: &[BorrowedFd<'_>]) -> ([Dumped; 2], Duration) {
    let barrier = Barrier::new(2);
    let began = Instant::now();
    let step = |fds| {
        let mut rest = Duration::ZERO;
        let dumped = dump_in_step(fds, cluster(), || {
            rest = began.elapsed();
            barrier.wait();
        });
        (dumped.unwrap(), rest)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| step(right));
        let (one, rest) = step(left);
        let (other, other_rest) = other.join().unwrap();
        ([one, other], rest.max(other_rest))
    })
}

fn outer(dumped: &Dumped) -> Vec<OuterSocket> {
    let graph = dumped.graph();
    let all = (0..graph.files.len()).map(|index| FileId(index as u32)).collect();
    outer_sockets(&graph, &all)
}

/// What the coordinator and two agents do.
fn connect(dumped: [&Dumped; 2], ends: [Vec<OuterSocket>; 2]) -> [BTreeMap<FileId, OwnedFd>; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let agents = [Arc::new(Wires::default()), Arc::new(Wires::default())];
        let port = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let SocketAddr::V6(to) = port.local_addr().unwrap() else { panic!("it is of AF_INET6") };
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let passive = agents[0].clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = port.accept().await {
                let passive = passive.clone();
                tokio::spawn(async move { passive.admit(stream).await });
            }
        });
        let instance = InstanceKey { job: "j".into(), epoch: 1, instance: InstanceId(0) };
        let order = |side: usize, end: &OuterSocket, number: usize, role| WireOrder {
            pair: Pair::new(&Secret::new([number as u8; 32]), &instance),
            role,
            v6: end.v6,
            queue: end.received.map(|blob| dumped[side].blob(blob)).unwrap_or_default(),
            shut_write: end.shut_write,
        };
        let mut plans = [Vec::new(), Vec::new()];
        let mut files = [Vec::new(), Vec::new()];
        for (number, end) in ends[0].iter().enumerate() {
            let peer = ends[1].iter().find(|peer| (peer.local, peer.peer) == (end.peer, end.local));
            let Some(peer) = peer else { continue };
            assert!(!end.in_flight && !peer.in_flight);
            plans[0].push(order(0, end, number, Role::Passive));
            plans[1].push(order(1, peer, number, Role::Active { to }));
            files[0].push(end.file);
            files[1].push(peer.file);
        }
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        let [left, right] = plans;
        let made =
            tokio::try_join!(agents[0].connect(left, deadline), agents[1].connect(right, deadline));
        let (left, right) = made.unwrap();
        let by_file = |files: &[FileId], made: Vec<TcpStream>| {
            files.iter().copied().zip(made.into_iter().map(OwnedFd::from)).collect()
        };
        [by_file(&files[0], left), by_file(&files[1], right)]
    })
}

fn restore_both(dumped: &[Dumped; 2]) -> [Restored; 2] {
    let [left, right] = connect([&dumped[0], &dumped[1]], [outer(&dumped[0]), outer(&dumped[1])]);
    let restore = |dumped: &Dumped, connections| {
        let back = dumped.restore_with(|context| {
            context.cluster = true;
            context.connections = connections;
        });
        let back = back.unwrap();
        assert!(back.warnings.is_empty(), "{:?}", back.warnings);
        back
    };
    [restore(&dumped[0], left), restore(&dumped[1], right)]
}

#[test]
fn bytes_between_instances_stay_and_return() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (listener, mut client, mut server) = pair_at(address);
        drop(listener);
        client.write_all(b"to the server").unwrap();
        server.write_all(b"to the client").unwrap();
        client.set_nodelay(true).unwrap();
        let (dumped, _) = dump_both(&[client.as_fd()], &[server.as_fd()]);
        assert!(dumped.iter().all(|one| one.context.warnings.is_empty()));
        assert_eq!(read_all_now(&server), b"to the server");
        assert_eq!(read_all_now(&client), b"to the client");
        client.write_all(b"live").unwrap();
        assert_eq!(read_all_now(&server), b"live");
        drop((client, server));
        let back = restore_both(&dumped);
        let (mut client, server) = (stream(&back[0].fds[0]), stream(&back[1].fds[0]));
        assert!(client.nodelay().unwrap() && !server.nodelay().unwrap());
        assert_eq!(read_all_now(&server), b"to the server");
        assert_eq!(read_all_now(&client), b"to the client");
        client.write_all(b"more").unwrap();
        assert_eq!(read_all_now(&server), b"more");
    }
}

#[test]
fn full_windows_both_ways_are_emptied_without_reading() {
    for small in [false, true] {
        let (listener, client, server) = pair_at("127.0.0.1:0");
        drop(listener);
        if small {
            SockRef::from(&server).set_recv_buffer_size(20_000).unwrap();
            SockRef::from(&client).set_tcp_cork(true).unwrap();
        }
        let (sent, answered) = (fill(&client, 1), fill(&server, 2));
        // Long enough for the senders' probes of the closed windows to be seconds apart.
        std::thread::sleep(Duration::from_millis(1500));
        let options = |socket: &TcpStream| {
            let get = |name| sockopt::get_int(socket, libc::SOL_SOCKET, name).unwrap();
            // Without privilege a size that the kernel chose stays larger.
            let exact = nix::unistd::geteuid().is_root() || get(72) & 2 != 0;
            (exact.then(|| get(libc::SO_RCVBUF)), get(72), get(libc::SO_RCVLOWAT))
        };
        let before = (options(&client), options(&server));
        let (dumped, rest) = dump_both(&[client.as_fd()], &[server.as_fd()]);
        eprintln!("{} and {} bytes at rest after {rest:?}", sent.len(), answered.len());
        assert!(rest < Duration::from_millis(400), "{rest:?}");
        assert_eq!((options(&client), options(&server)), before);
        let (at_server, at_client) = (read_all_now(&server), read_all_now(&client));
        assert!(at_server == sent && at_client == answered, "live bytes differ");
        drop((client, server));
        let back = restore_both(&dumped);
        let (client, server) = (stream(&back[0].fds[0]), stream(&back[1].fds[0]));
        assert!(read_all_now(&server) == sent && read_all_now(&client) == answered, "bytes differ");
        assert_eq!(SockRef::from(&client).tcp_cork().unwrap(), small);
    }
}

#[test]
fn many_connections_come_to_rest_fast() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ends = Vec::new();
    for number in 0..60 {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(&pattern(100 * number, 3)).unwrap();
        ends.push((client, listener.accept().unwrap().0));
    }
    let clients: Vec<_> = ends.iter().map(|(client, _)| client.as_fd()).collect();
    let servers: Vec<_> = ends.iter().map(|(_, server)| server.as_fd()).collect();
    let (dumped, rest) = dump_both(&clients, &servers);
    assert!(rest < Duration::from_millis(200), "{rest:?}");
    drop(ends);
    let back = restore_both(&dumped);
    for (number, fd) in back[1].fds.iter().enumerate() {
        assert_eq!(read_all_now(&stream(fd)), pattern(100 * number, 3));
    }
}

#[test]
fn half_closed_between_instances() {
    let (listener, mut client, mut server) = pair_at("127.0.0.1:0");
    drop(listener);
    client.write_all(b"last words").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.write_all(b"answer").unwrap();
    let (dumped, _) = dump_both(&[client.as_fd()], &[server.as_fd()]);
    assert!(outer(&dumped[0])[0].shut_write && outer(&dumped[1])[0].peer_shut);
    drop((client, server));
    let back = restore_both(&dumped);
    let (client, mut server) = (stream(&back[0].fds[0]), stream(&back[1].fds[0]));
    let mut text = String::new();
    server.read_to_string(&mut text).unwrap();
    assert_eq!(text, "last words");
    assert_eq!(read_all_now(&client), b"answer");
    assert_eq!((&client).write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    server.write_all(b"still open").unwrap();
    assert_eq!(read_all_now(&client), b"still open");
}

#[test]
fn an_end_without_its_peer_is_found_reset_or_at_its_end() {
    let (listener, mut client, server) = pair_at("127.0.0.1:0");
    drop(listener);
    client.write_all(b"before").unwrap();
    let (dumped, _) = dump_both(&[client.as_fd()], &[server.as_fd()]);
    client.shutdown(Shutdown::Write).unwrap();
    let (ended, _) = dump_both(&[client.as_fd()], &[server.as_fd()]);
    drop((client, server));
    let alone = |dumped: &Dumped| dumped.restore_with(|context| context.cluster = true).unwrap();
    let mut text = Vec::new();
    let error = stream(&alone(&dumped[1]).fds[0]).read_to_end(&mut text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    text.clear();
    stream(&alone(&ended[1]).fds[0]).read_to_end(&mut text).unwrap();
    assert_eq!(text, b"before");
}

#[test]
fn a_connection_within_an_instance_can_come_apart() {
    let (listener, mut client, mut server) = pair_at("127.0.0.1:0");
    drop(listener);
    client.write_all(b"to the server").unwrap();
    server.write_all(b"to the client").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let dumped = try_dump(&[client.as_fd(), server.as_fd()], cluster()).unwrap();
    let names = (client.local_addr().unwrap(), server.local_addr().unwrap());
    drop((client, server));
    let graph = dumped.graph();
    let together = outer_sockets(&graph, &[FileId(0), FileId(1)].into());
    assert!(together.is_empty(), "{together:?}");
    let parts = [FileId(0), FileId(1)].map(|file| outer_sockets(&graph, &[file].into()));
    assert_eq!((parts[0][0].local, parts[1][0].local), names);
    assert_eq!((parts[0][0].peer, parts[1][0].peer), (names.1, names.0));
    assert!(parts[0][0].shut_write && !parts[1][0].shut_write);
    let [left, right] = connect([&dumped, &dumped], parts);
    // Both parts in one restore: each end takes what was made for it.
    let connections: BTreeMap<FileId, OwnedFd> = left.into_iter().chain(right).collect();
    assert_eq!(connections.len(), 2);
    let back = dumped.restore_with(|context| {
        context.cluster = true;
        context.connections = connections;
    });
    let back = back.unwrap();
    let mut text = String::new();
    stream(&back.fds[1]).read_to_string(&mut text).unwrap();
    assert_eq!(text, "to the server");
    assert_eq!(read_all_now(&stream(&back.fds[0])), b"to the client");
}

#[test]
fn a_connection_that_waits_in_another_part_is_found_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"lost").unwrap();
    let mut dumped = try_dump(&[client.as_fd(), listener.as_fd()], cluster()).unwrap();
    drop((client, listener));
    dumped.files.truncate(1);
    let back = dumped.restore_with(|context| context.cluster = true).unwrap();
    let error = stream(&back.fds[0]).read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_peer_that_takes_nothing_fails_the_checkpoint_if_it_may_be_of_the_job() {
    let (listener, client, server) = pair_at("127.0.0.1:0");
    drop(listener);
    let sent = fill(&client, 1);
    let began = Instant::now();
    let error = try_dump(&[client.as_fd()], cluster()).err().unwrap();
    assert!(error.passes() && error.to_string().contains("another node"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(4));
    assert!(read_all_now(&server) == sent);
}

#[test]
fn connections_not_accepted_from_another_instance_pass() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let error = try_dump(&[listener.as_fd()], cluster()).err().unwrap();
    assert!(error.passes(), "{error}");
    let one_machine = DumpContext { external: External::Warn, ..DumpContext::default() };
    let dumped = try_dump(&[listener.as_fd()], one_machine).unwrap();
    assert_eq!(dumped.context.warnings.len(), 1);
    listener.accept().unwrap();
    try_dump(&[listener.as_fd()], cluster()).unwrap();
    drop(client);
}

#[test]
fn listeners_move_and_say_so() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let v6 = TcpListener::bind("[::]:0").unwrap();
    let dumped = try_dump(&[taken.as_fd(), any.as_fd(), v6.as_fd()], cluster()).unwrap();
    let names: Vec<SocketAddr> =
        [&taken, &any, &v6].iter().map(|one| one.local_addr().unwrap()).collect();
    drop(v6);
    let restore = |dumped: &Dumped| dumped.restore_with(|context| context.cluster = true).unwrap();
    // Two of the ports are still taken.
    let back = restore(&dumped);
    assert!(back.warnings.is_empty(), "{:?}", back.warnings);
    assert_eq!(back.moved.iter().map(|moved| moved.0).collect::<Vec<_>>(), names[..2]);
    for (fd, name) in back.fds.iter().zip(&names) {
        let now = SockRef::from(fd).local_addr().unwrap().as_socket().unwrap();
        assert_eq!(now.ip(), name.ip());
        assert!(now == *name || back.moved.contains(&(*name, now)));
        let port = SocketAddr::new("127.0.0.1".parse().unwrap(), now.port());
        TcpStream::connect(port).unwrap();
    }
    // An address that this machine does not have, as another machine's listener has it.
    let mut elsewhere = dumped;
    let strange: SocketAddr = format!("192.0.2.7:{}", names[2].port()).parse().unwrap();
    drop((back, any));
    let crate::objects::Object::TcpSocket(socket) = &mut elsewhere.files[1].object else {
        panic!("no TCP socket");
    };
    socket.local = Some(strange);
    elsewhere.files.truncate(2);
    let back = restore(&elsewhere);
    let now = SockRef::from(&back.fds[1]).local_addr().unwrap().as_socket().unwrap();
    assert_eq!(now, format!("0.0.0.0:{}", strange.port()).parse().unwrap());
    assert!(back.moved.contains(&(strange, now)));
}

/// Runs in a network of its own that has two addresses which are not of the loopback's net.
fn between_machines(run: impl FnOnce(&str, &str) + Send) {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_err() {
                // Without privilege there is no such network.
                return;
            }
            let ip = |arguments: &[&str]| {
                let status = std::process::Command::new("ip").args(arguments).status();
                assert!(status.unwrap().success());
            };
            ip(&["link", "set", "lo", "up"]);
            ip(&["address", "add", "192.0.2.1/32", "dev", "lo"]);
            ip(&["address", "add", "192.0.2.2/32", "dev", "lo"]);
            run("192.0.2.1", "192.0.2.2");
        });
        other.join().unwrap();
    });
}

fn pair_between(client: &str, server: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((server, 0)).unwrap();
    let address = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 0);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&address(client).into()).unwrap();
    socket.connect(&listener.local_addr().unwrap().into()).unwrap();
    (socket.into(), listener.accept().unwrap().0)
}

#[test]
fn what_a_stranger_does_not_take_does_not_hold_up_a_checkpoint() {
    between_machines(|here, there| {
        let (client, server) = pair_between(here, there);
        let sent = fill(&client, 1);
        for (machines, said) in [(vec![], 1), (vec![here], 1)] {
            let machines = machines.iter().map(|ip| ip.parse().unwrap()).collect();
            let began = Instant::now();
            let dumped = try_dump(&[client.as_fd()], DumpContext { machines, ..cluster() });
            let dumped = dumped.unwrap();
            // The job's own bytes would be waited for longer (`LONGEST` of quiesce.rs).
            assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
            assert!(outer(&dumped)[0].in_flight);
            assert_eq!(dumped.context.warnings.len(), said, "{:?}", dumped.context.warnings);
        }
        let machines = [here, there].map(|ip| ip.parse().unwrap()).into();
        let error = try_dump(&[client.as_fd()], DumpContext { machines, ..cluster() });
        assert!(error.err().unwrap().passes());
        assert!(read_all_now(&server) == sent);
        // Nothing is under way: a machine that is not the job's is told of, others are not.
        for (machines, said) in [(vec![here], 1), (vec![here, there], 0), (vec![], 0)] {
            let machines = machines.iter().map(|ip| ip.parse().unwrap()).collect();
            let dumped = try_dump(&[client.as_fd()], DumpContext { machines, ..cluster() });
            let dumped = dumped.unwrap();
            assert!(!outer(&dumped)[0].in_flight);
            assert_eq!(dumped.context.warnings.len(), said, "{:?}", dumped.context.warnings);
        }
    });
}

#[test]
fn what_a_closed_socket_still_sends_arrives() {
    between_machines(|here, there| {
        let (client, server) = pair_between(here, there);
        let sent = fill(&client, 1);
        drop(client);
        let (other, other_end) = pair_between(here, there);
        let (dumped, rest) = dump_both(&[other.as_fd()], &[server.as_fd(), other_end.as_fd()]);
        eprintln!("orphan at rest after {rest:?}");
        let crate::objects::Object::TcpSocket(end) = &dumped[1].files[0].object else {
            panic!("no TCP socket");
        };
        let end = end.connection().unwrap();
        assert_eq!(end.end, super::PeerEnd::Closed);
        assert!(dumped[1].blob(end.received.unwrap()) == sent);
        assert!(read_all_now(&server) == sent);
    });
}

/// Two networks with a cable between them, as two machines have it, each with a thread of its own;
/// `delay`: how long a packet takes, where this machine can do that.
fn two_machines(
    delay: Option<&str>,
    left: impl FnOnce(&Barrier) + Send,
    right: impl FnOnce(&Barrier) + Send,
) {
    let run = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let barrier = &Barrier::new(2);
    let (tell, told) = std::sync::mpsc::channel();
    let new_network = || nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_ok();
    let up = |name: &str, address: &str| {
        assert!(run("ip", &["link", "set", "lo", "up"]));
        assert!(run("ip", &["address", "add", address, "dev", name]));
        assert!(run("ip", &["link", "set", name, "up"]));
        if let Some(delay) = delay {
            // Without it the test is of less worth, and still right.
            run("tc", &["qdisc", "add", "dev", name, "root", "netem", "delay", delay]);
        }
    };
    let (run, new_network, up) = (&run, &new_network, &up);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if !new_network() {
                return;
            }
            let task: i32 = told.recv().unwrap();
            let (task, kind) = (task.to_string(), ["type", "veth", "peer", "name", "right"]);
            let mut arguments = vec!["link", "add", "left"];
            arguments.extend(kind);
            arguments.extend(["netns", &task]);
            assert!(run("ip", &arguments));
            barrier.wait();
            up("left", "192.0.2.1/24");
            barrier.wait();
            left(barrier);
        });
        scope.spawn(move || {
            if !new_network() {
                return;
            }
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            barrier.wait();
            up("right", "192.0.2.2/24");
            barrier.wait();
            right(barrier);
        });
    });
}

#[test]
fn two_machines_with_a_cable_come_to_rest() {
    for delay in [None, Some("3ms")] {
        let (send_sent, sent) = std::sync::mpsc::channel();
        let (send_answered, answered) = std::sync::mpsc::channel();
        let step = |barrier: &Barrier, fds: &[BorrowedFd<'_>]| {
            let mut rest = Duration::ZERO;
            barrier.wait();
            let began = Instant::now();
            let dumped = dump_in_step(fds, cluster(), || {
                rest = began.elapsed();
                barrier.wait();
            });
            eprintln!("at rest after {rest:?}, delay {delay:?}");
            assert!(rest < Duration::from_millis(1500), "{rest:?}");
            dumped.unwrap()
        };
        let step = &step;
        two_machines(
            delay,
            move |barrier| {
                barrier.wait();
                let client = TcpStream::connect("192.0.2.2:5000").unwrap();
                let mut half = TcpStream::connect("192.0.2.2:5000").unwrap();
                half.write_all(b"last words").unwrap();
                half.shutdown(Shutdown::Write).unwrap();
                send_sent.send(fill(&client, 1)).unwrap();
                std::thread::sleep(Duration::from_millis(700));
                let dumped = step(barrier, &[client.as_fd(), half.as_fd()]);
                let answered: Vec<u8> = answered.recv().unwrap();
                let ends = outer(&dumped);
                assert!(dumped.blob(ends[0].received.unwrap()) == answered);
                assert!(ends[1].shut_write && !ends[1].peer_shut && ends[1].received.is_none());
                assert!(ends.iter().all(|end| !end.in_flight));
                assert!(read_all_now(&client) == answered);
                barrier.wait();
            },
            move |barrier| {
                let listener = TcpListener::bind("192.0.2.2:5000").unwrap();
                barrier.wait();
                let (server, _) = listener.accept().unwrap();
                let (half, _) = listener.accept().unwrap();
                send_answered.send(fill(&server, 2)).unwrap();
                let fds = [server.as_fd(), half.as_fd(), listener.as_fd()];
                let dumped = step(barrier, &fds);
                let sent = sent.recv().unwrap();
                let ends = outer(&dumped);
                assert!(dumped.blob(ends[0].received.unwrap()) == sent);
                assert!(ends[1].peer_shut && !ends[1].shut_write);
                assert_eq!(dumped.blob(ends[1].received.unwrap()), b"last words");
                assert!(ends.iter().all(|end| !end.in_flight));
                assert!(read_all_now(&server) == sent);
                barrier.wait();
            },
        );
    }
}
