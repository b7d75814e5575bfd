//! Each test makes sockets in this process, dumps them, checks that they still hold the same
//! bytes, closes them, restores, and checks again.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

use socket2::{Domain, Socket, Type};

use super::super::testing::{dump, probe, try_dump};
use super::super::{DumpContext, External, Shown};
use super::{FileId, UnixKind};

fn stream(fd: &OwnedFd) -> UnixStream {
    UnixStream::from(fd.try_clone().unwrap())
}

fn read_now(stream: &UnixStream) -> Vec<u8> {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    // Ends with an error where the peer is open.
    let _ = (&*stream).read_to_end(&mut bytes);
    stream.set_nonblocking(false).unwrap();
    bytes
}

#[test]
fn pairs_with_bytes_and_half_closes() {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    let big = vec![7u8; 100_000];
    a.write_all(&big).unwrap();
    b.write_all(b"back").unwrap();
    a.shutdown(Shutdown::Write).unwrap();
    let dumped = dump(&[b.as_fd(), a.as_fd()]);
    assert!(read_now(&b) == big && read_now(&a) == b"back");
    drop((a, b));
    let back = dumped.restore();
    let (mut b, mut a) = (stream(&back.fds[0]), stream(&back.fds[1]));
    let mut got = Vec::new();
    b.read_to_end(&mut got).unwrap();
    assert!(got == big && read_now(&a) == b"back");
    assert_eq!(a.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    b.write_all(b"open").unwrap();
    assert_eq!(read_now(&a), b"open");
}

#[test]
fn a_closed_peer_leaves_bytes_and_reset() {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    a.write_all(b"left").unwrap();
    drop(a);
    let dumped = dump(&[b.as_fd()]);
    assert!(dumped.context.warnings.is_empty());
    let mut text = String::new();
    b.read_to_string(&mut text).unwrap();
    drop(b);
    let back = dumped.restore();
    let mut restored = String::new();
    stream(&back.fds[0]).read_to_string(&mut restored).unwrap();
    assert_eq!((text.as_str(), restored.as_str()), ("left", "left"));
    drop(back);

    let (a, mut b) = UnixStream::pair().unwrap();
    b.write_all(b"unread").unwrap();
    drop(a);
    let back = dump(&[b.as_fd()]).restore();
    let error = stream(&back.fds[0]).read(&mut [0; 4]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn listeners_by_path_and_abstract_with_waiting_connections() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let abstract_name = format!("ckptd-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
    let by_path = UnixListener::bind(&path).unwrap();
    let by_name = UnixListener::bind_addr(&address).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    let (server, _) = by_path.accept().unwrap();
    client.write_all(b"hello").unwrap();
    let first = UnixStream::connect_addr(&address).unwrap();
    let second = UnixStream::connect_addr(&address).unwrap();
    let fds = [
        by_path.as_fd(),
        by_name.as_fd(),
        client.as_fd(),
        server.as_fd(),
        second.as_fd(),
        first.as_fd(),
    ];
    let dumped = dump(&fds);
    let mut early = first.try_clone().unwrap();
    early.write_all(b"unseen").unwrap();
    let Err(refusal) = try_dump(&fds, DumpContext::default()) else { panic!("not refused") };
    assert!(refusal.to_string().contains("try again"), "{refusal}");
    drop((by_path, by_name, client, server, second, first, early));
    let back = dumped.restore();
    let by_path = UnixListener::from(back.fds[0].try_clone().unwrap());
    let by_name = UnixListener::from(back.fds[1].try_clone().unwrap());
    let server = stream(&back.fds[3]);
    assert_eq!(read_now(&server), b"hello");
    assert_eq!(server.local_addr().unwrap().as_pathname().unwrap(), path);
    let peer = stream(&back.fds[2]).peer_addr().unwrap();
    assert_eq!(peer.as_pathname().unwrap(), path);
    stream(&back.fds[5]).write_all(b"first").unwrap();
    stream(&back.fds[4]).write_all(b"second").unwrap();
    assert_eq!(read_now(&by_name.accept().unwrap().0), b"first");
    assert_eq!(read_now(&by_name.accept().unwrap().0), b"second");
    let again = UnixStream::connect(&path).unwrap();
    by_path.accept().unwrap();
    drop(again);
}

#[test]
fn messages_keep_their_boundaries() {
    let (a, b) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    let (c, d) = UnixDatagram::pair().unwrap();
    for text in [&b"one"[..], b"three", b"x"] {
        a.send(text).unwrap();
        c.send(text).unwrap();
    }
    let dumped = dump(&[a.as_fd(), b.as_fd(), c.as_fd(), d.as_fd()]);
    let check = |b: &dyn AsRawFd, d: &dyn AsRawFd| {
        for fd in [b.as_raw_fd(), d.as_raw_fd()] {
            for text in [&b"one"[..], b"three", b"x"] {
                let mut buffer = [0u8; 64];
                let count = nix::unistd::read(unsafe_borrow(fd), &mut buffer).unwrap();
                assert_eq!(&buffer[..count], text);
            }
        }
    };
    check(&b, &d);
    drop((a, b, c, d));
    let back = dumped.restore();
    check(&back.fds[1], &back.fds[3]);
}

fn unsafe_borrow<'a>(fd: i32) -> std::os::fd::BorrowedFd<'a> {
    // SAFETY: the caller's object holds the descriptor open during the call.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }
}

#[test]
fn named_datagrams_keep_their_senders() {
    let directory = tempfile::tempdir().unwrap();
    let (to, from) = (directory.path().join("to"), directory.path().join("from"));
    let receiver = UnixDatagram::bind(&to).unwrap();
    let sender = UnixDatagram::bind(&from).unwrap();
    sender.connect(&to).unwrap();
    sender.send(b"named").unwrap();
    UnixDatagram::unbound().unwrap().send_to(b"nameless", &to).unwrap();
    let dumped = dump(&[receiver.as_fd(), sender.as_fd()]);
    drop((receiver, sender));
    let back = dumped.restore();
    let receiver = UnixDatagram::from(back.fds[0].try_clone().unwrap());
    let sender = UnixDatagram::from(back.fds[1].try_clone().unwrap());
    let mut buffer = [0u8; 32];
    let (count, address) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..count], address.as_pathname()), (&b"named"[..], Some(from.as_path())));
    let (count, address) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..count], address.is_unnamed()), (&b"nameless"[..], true));
    sender.send(b"on").unwrap();
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 2);
}

#[test]
fn what_is_under_way_is_found_in_its_order() {
    use super::queue;
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use std::os::fd::RawFd;
    let (a, b) = UnixStream::pair().unwrap();
    let send = |bytes: &[u8], files: &[RawFd]| {
        let rights = [ControlMessage::ScmRights(files)];
        let rights = if files.is_empty() { &[][..] } else { &rights[..] };
        let parts = [std::io::IoSlice::new(bytes)];
        sendmsg::<()>(a.as_raw_fd(), &parts, rights, MsgFlags::empty(), None).unwrap();
    };
    let (null, zero) = (File::open("/dev/null").unwrap(), File::open("/dev/zero").unwrap());
    send(b"first", &[]);
    send(b"second", &[null.as_raw_fd(), zero.as_raw_fd()]);
    send(b"third", &[]);
    send(b"f", &[null.as_raw_fd()]);
    let probe = probe(&b);
    let found = queue::in_flight(&probe, UnixKind::Stream, &Shown::default()).unwrap();
    let paths: Vec<_> = found
        .iter()
        .map(|fd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap())
        .collect();
    assert_eq!(paths, ["/dev/null", "/dev/zero", "/dev/null"].map(std::path::PathBuf::from));
    let mut context = DumpContext::default();
    context.in_flight.insert(probe.inode(), (7..10).map(FileId).collect());
    let messages = queue::peek(&probe, UnixKind::Stream, &mut context).unwrap();
    let files: Vec<Vec<u32>> =
        messages.iter().map(|message| message.files.iter().map(|id| id.0).collect()).collect();
    assert_eq!(files, [vec![], vec![7, 8], vec![], vec![9]]);
    // One that nobody has told of.
    assert!(queue::peek(&probe, UnixKind::Stream, &mut context).is_err());
}

#[test]
fn strangers_are_refused() {
    let (c, d) = UnixStream::pair().unwrap();
    let context = DumpContext { external: External::Fail, ..DumpContext::default() };
    let Err(refusal) = try_dump(&[c.as_fd()], context) else { panic!() };
    assert!(refusal.to_string().contains("outside of the job"), "{refusal}");
    drop(d);
}

#[test]
fn an_urgent_byte_keeps_its_place() {
    use nix::sys::socket::{MsgFlags, recv, send};

    let (a, b) = UnixStream::pair().unwrap();
    (&a).write_all(b"before").unwrap();
    if send(a.as_raw_fd(), b"U", MsgFlags::MSG_OOB).is_err() {
        return;
    }
    (&a).write_all(b"behind").unwrap();
    let check = |b: &UnixStream| {
        let mut bytes = [0; 64];
        let mut now = |flags| {
            let got = recv(b.as_raw_fd(), &mut bytes, flags | MsgFlags::MSG_DONTWAIT).unwrap();
            bytes[..got].to_vec()
        };
        assert_eq!(now(MsgFlags::empty()), b"before");
        assert_eq!(now(MsgFlags::MSG_OOB), b"U");
        assert_eq!(now(MsgFlags::empty()), b"behind");
    };
    let dumped = dump(&[a.as_fd(), b.as_fd()]);
    check(&b);
    drop((a, b));
    let back = dumped.restore();
    check(&stream(&back.fds[1]));
}
