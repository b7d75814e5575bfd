use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use ckpt_engine::objects::{External, StdioRole};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{mkfifo, pipe2, read, write};

use crate::harness::{again, alone, dump, dump_with, flags_of, same};

fn nonblocking() -> (OwnedFd, OwnedFd) {
    pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap()
}

fn read_all(fd: &OwnedFd) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 8192]);
    while let Ok(count @ 1..) = read(fd, &mut buffer) {
        all.extend_from_slice(&buffer[..count]);
    }
    all
}

fn events(fd: &OwnedFd) -> PollFlags {
    let mut set = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut set, PollTimeout::ZERO).unwrap();
    set[0].revents().unwrap()
}

#[test]
fn content_survives_and_stays_in_the_live_pipe() {
    let _alone = alone();
    let (reader, writer) = nonblocking();
    let sent: Vec<u8> = (0..100_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(1 << 18)).unwrap();
    for piece in sent.chunks(3001) {
        assert_eq!(write(&writer, piece).unwrap(), piece.len());
    }
    let image = dump(&[&reader, &writer]).unwrap();
    assert_eq!(read_all(&reader), sent);
    drop((reader, writer));
    let new = image.restore().unwrap().fds;
    assert_eq!(fcntl(&new[0], FcntlArg::F_GETPIPE_SZ).unwrap(), 1 << 18);
    assert_eq!(flags_of(&new[0]), libc::O_RDONLY | libc::O_NONBLOCK);
    assert_eq!(flags_of(&new[1]), libc::O_WRONLY | libc::O_NONBLOCK);
    assert_eq!(read_all(&new[0]), sent);
    write(&new[1], b"more").unwrap();
    assert_eq!(read_all(&new[0]), b"more");
}

#[test]
fn a_full_pipe_is_full_again() {
    let _alone = alone();
    let (reader, writer) = nonblocking();
    let mut total = 0;
    while let Ok(count) = write(&writer, &[5; 4096]) {
        total += count;
    }
    let new = dump(&[&reader, &writer]).unwrap().restore().unwrap().fds;
    drop((reader, writer));
    assert_eq!(write(&new[1], &[6]), Err(Errno::EAGAIN));
    assert_eq!(read_all(&new[0]), vec![5; total]);
}

#[test]
fn packets_keep_their_boundaries() {
    let _alone = alone();
    for close_writer in [false, true] {
        let (reader, writer) = pipe2(OFlag::O_NONBLOCK | OFlag::O_DIRECT).unwrap();
        for packet in [&b"one"[..], b"2", b"three"] {
            write(&writer, packet).unwrap();
        }
        let image = if close_writer {
            drop(writer);
            dump(&[&reader])
        } else {
            dump(&[&reader, &writer])
        };
        let new = image.unwrap().restore().unwrap().fds;
        if let Some(writer) = new.get(1) {
            assert_ne!(flags_of(writer) & libc::O_DIRECT, 0);
        }
        let mut buffer = [0; 2];
        assert_eq!(read(&new[0], &mut buffer).unwrap(), 2);
        assert_eq!(&buffer, b"on");
        let mut buffer = [0; 100];
        assert_eq!(read(&new[0], &mut buffer).unwrap(), 1);
        assert_eq!(read(&new[0], &mut buffer).unwrap(), 5);
    }
}

#[test]
fn dead_ends_stay_dead() {
    let _alone = alone();
    let (reader, writer) = nonblocking();
    write(&writer, b"last words").unwrap();
    drop(writer);
    let (other_reader, broken) = nonblocking();
    drop(other_reader);
    let new = dump(&[&reader, &broken]).unwrap().restore().unwrap().fds;
    assert!(events(&new[0]).contains(PollFlags::POLLHUP));
    assert_eq!(read_all(&new[0]), b"last words");
    assert_eq!(read(&new[0], &mut [0]).unwrap(), 0);
    assert!(events(&new[1]).contains(PollFlags::POLLERR));
}

#[test]
fn several_descriptions_of_one_pipe() {
    let _alone = alone();
    let (reader, writer) = nonblocking();
    let dup = writer.try_clone().unwrap();
    let second = again(&writer, File::options().write(true));
    let both = again(&writer, File::options().read(true).write(true));
    let new = dump(&[&both, &reader, &writer, &dup, &second]).unwrap().restore().unwrap().fds;
    assert!(same(&new[2], &new[3]));
    assert!(!same(&new[2], &new[4]));
    assert_eq!(flags_of(&new[0]), libc::O_RDWR);
    assert_eq!(flags_of(&new[4]), libc::O_WRONLY);
    write(&new[4], b"a").unwrap();
    write(&new[0], b"b").unwrap();
    write(&new[3], b"c").unwrap();
    assert_eq!(read_all(&new[1]), b"abc");
}

#[test]
fn standard_streams_go_to_the_launcher() {
    let _alone = alone();
    let (stdin, to_stdin) = nonblocking();
    let (from_stdout, stdout) = nonblocking();
    write(&to_stdin, b"typed").unwrap();
    write(&stdout, b"printed").unwrap();
    let inode = |fd: &OwnedFd| {
        let stat = nix::sys::stat::fstat(fd).unwrap();
        (stat.st_dev, stat.st_ino)
    };
    let roles =
        HashMap::from([(inode(&stdin), StdioRole::Stdin), (inode(&stdout), StdioRole::Stdout)]);
    let image = dump_with(&[&stdin, &stdout], |context| context.stdio = roles).unwrap();
    assert_eq!(read_all(&from_stdout), b"printed");
    let new = image.restore().unwrap();
    let console = new.console;
    assert_eq!(read_all(&new.fds[0]), b"typed");
    write(console.stdin.as_ref().unwrap(), b"!").unwrap();
    assert_eq!(read_all(&new.fds[0]), b"!");
    write(&new.fds[1], b"?").unwrap();
    let mut buffer = [0; 10];
    assert_eq!(read(console.stdout.as_ref().unwrap(), &mut buffer).unwrap(), 1);
    assert_eq!(console.stderr.as_ref().map(|_| ()), None);
    drop(console);
    assert!(events(&new.fds[0]).contains(PollFlags::POLLHUP));
}

#[test]
fn a_stranger_at_the_other_end() {
    let _alone = alone();
    let (reader, _writer) = nonblocking();
    let image = dump(&[&reader]).unwrap();
    assert!(image.warnings[0].contains("outside of the job"), "{:?}", image.warnings);
    assert_eq!(read(&image.restore().unwrap().fds[0], &mut [0]).unwrap(), 0);
    let error = dump_with(&[&reader], |context| context.external = External::Fail).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("process 42 (test), descriptor ") && text.contains("outside"),
        "{text}"
    );
}

#[test]
fn fifos() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o640)).unwrap();
    let open = |options: &mut std::fs::OpenOptions| -> OwnedFd {
        options.custom_flags(libc::O_NONBLOCK).open(&path).unwrap().into()
    };
    let reader = open(File::options().read(true));
    let lonely = dump(&[&reader]).unwrap().restore().unwrap().fds;
    assert_eq!(events(&lonely[0]), PollFlags::empty(), "never had a writer");
    drop(lonely);
    let writer = open(File::options().write(true));
    let second = open(File::options().write(true));
    write(&writer, b"through").unwrap();
    write(&second, b" a name").unwrap();
    let session = folder.path().to_path_buf();
    let image = dump_with(&[&reader, &writer, &second], |context| {
        context.session_directories.push(session);
    })
    .unwrap();
    assert_eq!(read_all(&reader), b"through a name");
    drop((reader, writer, second));
    std::fs::remove_file(&path).unwrap();
    let new = image.restore().unwrap().fds;
    assert_eq!(read_all(&new[0]), b"through a name");
    assert!(!same(&new[1], &new[2]));
    write(&new[2], b"on").unwrap();
    assert_eq!(read_all(&new[0]), b"on");
    // Unlinked, and only written: what is in it waits for a reader.
    std::fs::remove_file(&path).unwrap();
    write(&new[1], b"kept").unwrap();
    let mut fds = new.into_iter();
    let reader = fds.next().unwrap();
    let writer = fds.next().unwrap();
    drop((reader, fds));
    let image = dump(&[&writer]).unwrap();
    drop(writer);
    let new = image.restore().unwrap().fds;
    assert!(!path.exists());
    let late = again(&new[0], File::options().read(true).custom_flags(libc::O_NONBLOCK));
    assert_eq!(read_all(&late), b"kept");
}

#[test]
fn a_missing_fifo_is_named() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fd = File::options().read(true).write(true).open(&path).unwrap();
    let image = dump(&[&fd]).unwrap();
    std::fs::remove_file(&path).unwrap();
    let text = image.restore().unwrap_err().to_string();
    assert!(text.contains(path.to_str().unwrap()) && text.contains("mkfifo"), "{text}");
}
