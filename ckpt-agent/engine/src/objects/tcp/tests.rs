//! Each test makes sockets in this process, dumps them, checks that they still work and hold
//! the same bytes, closes them all, restores, and checks again.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::super::testing::{dump, try_dump};
use super::super::{DumpContext, External};

pub(super) fn pair_at(address: &str) -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (listener, client, server)
}

pub(super) fn read_all_now(stream: &TcpStream) -> Vec<u8> {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let mut piece = vec![0u8; 65536];
    let mut quiet = 0;
    while quiet < 20 {
        match (&*stream).read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                bytes.extend_from_slice(&piece[..count]);
                quiet = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                quiet += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    bytes
}

pub(super) fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

pub(super) fn stream(fd: &std::os::fd::OwnedFd) -> TcpStream {
    TcpStream::from(fd.try_clone().unwrap())
}

#[test]
fn bytes_in_both_directions_stay_and_return() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (listener, mut client, mut server) = pair_at(address);
        let names = (client.local_addr().unwrap(), server.local_addr().unwrap());
        client.write_all(b"to the server").unwrap();
        server.write_all(b"to the client").unwrap();
        let dumped = dump(&[client.as_fd(), server.as_fd(), listener.as_fd()]);
        assert_eq!(read_all_now(&server), b"to the server");
        assert_eq!(read_all_now(&client), b"to the client");
        drop((client, server, listener));
        let back = dumped.restore();
        assert!(back.warnings.is_empty(), "{:?}", back.warnings);
        let (mut client, server) = (stream(&back.fds[0]), stream(&back.fds[1]));
        let listener = TcpListener::from(back.fds[2].try_clone().unwrap());
        assert_eq!((client.local_addr().unwrap(), server.local_addr().unwrap()), names);
        assert_eq!((server.peer_addr().unwrap(), client.peer_addr().unwrap()), names);
        assert_eq!(read_all_now(&server), b"to the server");
        assert_eq!(read_all_now(&client), b"to the client");
        client.write_all(b"more").unwrap();
        assert_eq!(read_all_now(&server), b"more");
        let third = TcpStream::connect(names.1).unwrap();
        assert_eq!(listener.accept().unwrap().1, third.local_addr().unwrap());
    }
}

#[test]
fn a_full_window_is_drained_and_put_back() {
    let (listener, client, server) = pair_at("127.0.0.1:0");
    drop(listener);
    let sent = fill(&client, 1);
    let answered = fill(&server, 2);
    let dumped = dump(&[client.as_fd(), server.as_fd()]);
    let (at_server, at_client) = (read_all_now(&server), read_all_now(&client));
    assert!(at_server == sent && at_client == answered, "live bytes differ");
    drop((client, server));
    let back = dumped.restore();
    let (client, server) = (stream(&back.fds[0]), stream(&back.fds[1]));
    assert!(read_all_now(&server) == sent && read_all_now(&client) == answered, "bytes differ");
}

/// Writes until nothing more fits; returns what was written.
pub(super) fn fill(stream: &TcpStream, seed: u32) -> Vec<u8> {
    let all = pattern(16 << 20, seed);
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut quiet = 0;
    while quiet < 20 {
        match (&*stream).write(&all[sent..(sent + 4000).min(all.len())]) {
            Ok(count) => {
                sent += count;
                quiet = 0;
            }
            Err(_) => {
                quiet += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    stream.set_nonblocking(false).unwrap();
    all[..sent].to_vec()
}

#[test]
fn half_closed_either_way() {
    let (listener, mut client, mut server) = pair_at("127.0.0.1:0");
    drop(listener);
    client.write_all(b"last words").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.write_all(b"answer").unwrap();
    let dumped = dump(&[server.as_fd(), client.as_fd()]);
    drop((client, server));
    let back = dumped.restore();
    let (mut server, client) = (stream(&back.fds[0]), stream(&back.fds[1]));
    let mut text = String::new();
    server.read_to_string(&mut text).unwrap();
    assert_eq!(text, "last words");
    assert_eq!(read_all_now(&client), b"answer");
    assert_eq!((&client).write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    server.write_all(b"still open").unwrap();
    assert_eq!(read_all_now(&client), b"still open");
}

#[test]
fn a_closed_peer_leaves_its_bytes_and_end_of_file() {
    let (listener, mut client, server) = pair_at("127.0.0.1:0");
    drop(listener);
    client.write_all(b"legacy").unwrap();
    drop(client);
    let names = (server.local_addr().unwrap(), server.peer_addr().unwrap());
    let dumped = dump(&[server.as_fd()]);
    drop(server);
    let back = dumped.restore();
    let mut server = stream(&back.fds[0]);
    assert_eq!((server.local_addr().unwrap(), server.peer_addr().unwrap()), names);
    let mut text = String::new();
    server.read_to_string(&mut text).unwrap();
    assert_eq!(text, "legacy");
}

#[test]
fn a_reset_is_still_to_be_told() {
    let (listener, client, server) = pair_at("127.0.0.1:0");
    drop(listener);
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let dumped = dump(&[server.as_fd()]);
    drop(server);
    let back = dumped.restore();
    let error = stream(&back.fds[0]).read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn both_sides_shut_down_is_over() {
    let (listener, client, mut server) = pair_at("127.0.0.1:0");
    drop(listener);
    server.write_all(b"rest").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let dumped = dump(&[client.as_fd()]);
    drop((client, server));
    let back = dumped.restore();
    let mut client = stream(&back.fds[0]);
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "rest");
    assert_eq!(client.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn not_yet_accepted_is_accepted_afterwards() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let second = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let dumped = dump(&[listener.as_fd(), first.as_fd(), second.as_fd()]);
    let names = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    drop((listener, first, second));
    let back = dumped.restore();
    let listener = TcpListener::from(back.fds[0].try_clone().unwrap());
    for name in names {
        assert_eq!(listener.accept().unwrap().1, name);
    }
}

#[test]
fn bytes_of_connections_not_accepted_stay_and_return() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let at = listener.local_addr().unwrap();
        let mut clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(at).unwrap()).collect();
        // One that its program has bound.
        let bound = Socket::new(Domain::for_address(at), Type::STREAM, None).unwrap();
        bound.bind(&SocketAddr::new(at.ip(), 0).into()).unwrap();
        bound.connect(&at.into()).unwrap();
        clients.push(bound.into());
        // Nothing, a word and the end, more than the window, and a word of one that does not block.
        let mut large = pattern(4 << 20, 5);
        (&clients[1]).write_all(b"word").unwrap();
        clients[1].shutdown(Shutdown::Write).unwrap();
        clients[2].set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = (&clients[2]).write(&large[sent..]) {
            sent += count;
        }
        large.truncate(sent);
        clients[2].set_nonblocking(false).unwrap();
        clients[3].set_nonblocking(true).unwrap();
        (&clients[3]).write_all(b"last").unwrap();
        clients[3].set_nodelay(true).unwrap();
        let names: Vec<SocketAddr> = clients.iter().map(|one| one.local_addr().unwrap()).collect();
        let mut fds = vec![listener.as_fd()];
        fds.extend(clients.iter().map(AsFd::as_fd));
        let dumped = dump(&fds);
        let again = dump(&fds);
        assert!(dumped.context.warnings.is_empty(), "{:?}", dumped.context.warnings);
        let check = |listener: &TcpListener, clients: &[TcpStream]| {
            for (index, wanted) in [&b""[..], b"word", &large, b"last"].iter().enumerate() {
                let (mut server, from) = listener.accept().unwrap();
                assert_eq!(from, names[index]);
                assert_eq!(clients[index].local_addr().unwrap(), names[index]);
                assert!(read_all_now(&server) == *wanted, "connection {index}");
                server.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                let end = server.read(&mut [0; 8]);
                assert_eq!(end.is_ok_and(|count| count == 0), index == 1);
                server.write_all(b"answer").unwrap();
                assert_eq!(read_all_now(&clients[index]), b"answer");
                assert_eq!(clients[index].nodelay().unwrap(), index == 3);
                assert!(clients[index].take_error().unwrap().is_none());
            }
        };
        check(&listener, &clients);
        drop((listener, clients));
        for dumped in [dumped, again] {
            let back = dumped.restore();
            assert!(back.warnings.is_empty(), "{:?}", back.warnings);
            let clients: Vec<TcpStream> = back.fds[1..].iter().map(stream).collect();
            check(&TcpListener::from(back.fds[0].try_clone().unwrap()), &clients);
        }
    }
}

#[test]
fn listeners_keep_their_options() {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.set_only_v6(true).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_keepalive(true).unwrap();
    socket.set_recv_buffer_size(50_000).unwrap();
    socket.bind(&"[::]:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(77).unwrap();
    let plain = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    plain.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    plain.listen(5).unwrap();
    let dumped = dump(&[socket.as_fd(), plain.as_fd()]);
    let (name, plain_name) = (socket.local_addr().unwrap(), plain.local_addr().unwrap());
    let size = socket.recv_buffer_size().unwrap();
    drop((socket, plain));
    let back = dumped.restore();
    let socket = SockRef::from(&back.fds[0]);
    assert_eq!(socket.local_addr().unwrap().as_socket(), name.as_socket());
    assert!(socket.only_v6().unwrap() && socket.reuse_address().unwrap());
    assert!(socket.keepalive().unwrap() && socket.is_listener().unwrap());
    assert_eq!(socket.recv_buffer_size().unwrap(), size);
    let again = dump(&[back.fds[0].as_fd(), back.fds[1].as_fd()]);
    assert_eq!(
        serde_json::to_string(&again.files).unwrap(),
        serde_json::to_string(&dumped.files).unwrap()
    );
    let plain = SockRef::from(&back.fds[1]);
    assert_eq!(plain.local_addr().unwrap().as_socket(), plain_name.as_socket());
    // Its port is to be had again at once.
    assert!(plain.reuse_address().unwrap());
}

#[test]
fn connections_keep_their_options() {
    let (listener, client, server) = pair_at("127.0.0.1:0");
    drop(listener);
    client.set_nodelay(true).unwrap();
    let options = SockRef::from(&client);
    options.set_tcp_user_timeout(Some(Duration::from_millis(4321))).unwrap();
    options.set_linger(Some(Duration::from_secs(7))).unwrap();
    options.set_tos_v4(16).unwrap();
    options.set_ttl_v4(33).unwrap();
    options.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    options.set_send_buffer_size(100_000).unwrap();
    options
        .set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(Duration::from_secs(99)))
        .unwrap();
    let dumped = dump(&[client.as_fd(), server.as_fd()]);
    let before = serde_json::to_string(&dump(&[client.as_fd(), server.as_fd()]).files).unwrap();
    drop((client, server));
    let back = dumped.restore();
    let after =
        serde_json::to_string(&dump(&[back.fds[0].as_fd(), back.fds[1].as_fd()]).files).unwrap();
    // Buffers that the kernel tunes by itself, and its mode of acknowledging, may differ.
    let neutral = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        for file in value.as_array_mut().unwrap() {
            let options = file["object"]["options"].as_object_mut().unwrap();
            if options["buffer_lock"].as_i64().unwrap() & 1 == 0 {
                options.remove("send_buffer");
            }
            options.remove("receive_buffer");
            options["set"].as_object_mut().unwrap().remove("quick_ack");
        }
        value
    };
    assert_eq!(neutral(&before), neutral(&after));
}

#[test]
fn outside_is_reset_or_refused() {
    let (listener, client, server) = pair_at("127.0.0.1:0");
    drop(listener);
    let refusal = try_dump(
        &[client.as_fd()],
        DumpContext { external: External::Fail, ..DumpContext::default() },
    );
    assert!(refusal.err().unwrap().to_string().contains("outside of the job"));
    let dumped = dump(&[client.as_fd()]);
    assert_eq!(dumped.context.warnings.len(), 1, "{:?}", dumped.context.warnings);
    let back = dumped.restore();
    let error = stream(&back.fds[0]).read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    drop(server);
}

#[test]
fn ipv4_mapped_and_self_connected() {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.set_only_v6(false).unwrap();
    socket.bind(&"[::]:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(5).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (server, _) = socket.accept().unwrap();
    client.write_all(b"mapped").unwrap();
    let own = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    own.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let name = own.local_addr().unwrap();
    own.connect(&name).unwrap();
    own.send(b"myself").unwrap();
    let dumped = dump(&[client.as_fd(), socket.as_fd(), server.as_fd(), own.as_fd()]);
    let names = (client.local_addr().unwrap(), server.local_addr().unwrap().as_socket());
    drop((client, server, socket, own));
    let back = dumped.restore();
    assert!(back.warnings.is_empty(), "{:?}", back.warnings);
    let (client, server) = (stream(&back.fds[0]), stream(&back.fds[2]));
    assert_eq!((client.local_addr().unwrap(), Some(server.local_addr().unwrap())), names);
    assert_eq!(read_all_now(&server), b"mapped");
    assert_eq!(read_all_now(&stream(&back.fds[3])), b"myself");
}

#[test]
fn corked_bytes_are_not_lost() {
    let (listener, mut client, server) = pair_at("127.0.0.1:0");
    drop(listener);
    SockRef::from(&client).set_tcp_cork(true).unwrap();
    client.write_all(b"corked").unwrap();
    let dumped = dump(&[client.as_fd(), server.as_fd()]);
    assert!(SockRef::from(&client).tcp_cork().unwrap());
    drop((client, server));
    let back = dumped.restore();
    assert_eq!(read_all_now(&stream(&back.fds[1])), b"corked");
    assert!(SockRef::from(&back.fds[0]).tcp_cork().unwrap());
}

#[test]
fn three_generations_on_the_same_ports() {
    let (listener, mut client, server) = pair_at("127.0.0.1:0");
    client.write_all(b"generation").unwrap();
    let names = (client.local_addr().unwrap(), server.local_addr().unwrap());
    let mut fds: Vec<std::os::fd::OwnedFd> = vec![listener.into(), client.into(), server.into()];
    for _ in 0..3 {
        let dumped = dump(&[fds[0].as_fd(), fds[1].as_fd(), fds[2].as_fd()]);
        // Read here, so that the end is a FIN and TIME_WAIT rather than a reset.
        assert_eq!(read_all_now(&stream(&fds[2])), b"generation");
        drop(fds);
        let back = dumped.restore();
        assert!(back.warnings.is_empty(), "{:?}", back.warnings);
        fds = back.fds;
        let (client, server) = (stream(&fds[1]), stream(&fds[2]));
        assert_eq!((client.local_addr().unwrap(), server.local_addr().unwrap()), names);
    }
}
