//! Each test makes a terminal in this process, dumps it, checks that it still holds the same
//! bytes, closes it, restores it, and checks again.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::super::super::sys::poll::poll_one;
use super::super::super::sys::tty::{self, WindowSize};
use super::super::testing::{dump, try_dump};
use super::super::{ConsoleTerminal, DumpContext, StdioRole};
use super::restore::open_master;

/// Terminals of one devpts: a restore needs an index that another test could take.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn pair() -> (OwnedFd, OwnedFd) {
    let master = open_master().unwrap();
    tty::set_locked(&master, false).unwrap();
    let slave = tty::open_peer(&master, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC).unwrap();
    (master, slave)
}

fn change(fd: &OwnedFd, change: impl FnOnce(&mut libc::termios2)) {
    let mut modes = tty::modes(fd).unwrap();
    change(&mut modes);
    tty::set_modes(fd, &modes).unwrap();
}

fn write(fd: &OwnedFd, bytes: &[u8]) {
    assert_eq!(nix::unistd::write(fd, bytes).unwrap(), bytes.len());
}

/// Reads that are possible now, one element each.
fn reads(fd: BorrowedFd<'_>) -> Vec<Vec<u8>> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL).unwrap());
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    let mut all = Vec::new();
    let mut piece = [0u8; 16384];
    while let Ok(count) = nix::unistd::read(fd, &mut piece) {
        all.push(piece[..count].to_vec());
    }
    fcntl(fd, FcntlArg::F_SETFL(flags)).unwrap();
    all
}

#[test]
fn output_modes_and_size_return_under_the_same_index() {
    let _alone = alone();
    let (master, slave) = pair();
    let size = WindowSize { rows: 33, columns: 121, width: 5, height: 6 };
    tty::set_window_size(&master, size).unwrap();
    change(&slave, |modes| modes.c_lflag &= !libc::ECHO);
    let index = tty::master_index(&master).unwrap();
    write(&slave, b"one\ntwo\n");
    let second = tty::open_peer(&master, libc::O_WRONLY | libc::O_NOCTTY).unwrap();
    let dumped = dump(&[master.as_fd(), slave.as_fd(), second.as_fd()]);
    let modes = super::Modes::from(tty::modes(&slave).unwrap());
    assert_eq!(reads(master.as_fd()).concat(), b"one\r\ntwo\r\n");
    drop((master, slave, second));
    let back = dumped.restore();
    let (master, slave) = (&back.fds[0], &back.fds[1]);
    assert_eq!(tty::master_index(master).unwrap(), index);
    assert_eq!(tty::window_size(slave).unwrap(), size);
    assert_eq!(super::Modes::from(tty::modes(slave).unwrap()), modes);
    assert_eq!(reads(master.as_fd()).concat(), b"one\r\ntwo\r\n");
    let name = std::fs::read_link(format!("/proc/self/fd/{}", slave.as_raw_fd())).unwrap();
    assert_eq!(name.to_str().unwrap(), format!("/dev/pts/{index}"));
    write(&back.fds[2], b"x");
    assert_eq!(reads(master.as_fd()).concat(), b"x");
}

#[test]
fn lines_typed_ahead_keep_their_ends() {
    let _alone = alone();
    let (master, slave) = pair();
    // Two lines, one ended by end-of-file, an end-of-file alone, and a line begun.
    write(&master, b"ls -l\rcat\rpart\x04\x04open");
    let mut echo = Vec::new();
    // The kernel echoes when it comes to it.
    while !echo.ends_with(b"open") {
        assert_ne!(
            poll_one(&master, libc::POLLIN, Duration::from_secs(10)).unwrap(),
            0,
            "{echo:?}"
        );
        echo.extend(reads(master.as_fd()).concat());
    }
    let dumped = dump(&[master.as_fd(), slave.as_fd()]);
    let expected = [b"ls -l\n".to_vec(), b"cat\n".to_vec(), b"part".to_vec(), Vec::new()];
    let check = |master: &OwnedFd, slave: &OwnedFd| {
        assert!(reads(master.as_fd()).is_empty(), "put back with an echo");
        assert_eq!(reads(slave.as_fd()), expected);
        write(master, b"ed\r");
        assert_eq!(reads(slave.as_fd()), [b"opened\n".to_vec()]);
    };
    check(&master, &slave);
    drop((master, slave));
    let back = dumped.restore();
    check(&back.fds[0], &back.fds[1]);
}

#[test]
fn a_full_terminal_keeps_every_byte() {
    let _alone = alone();
    let all = [&[100][..], &[128], &[1], &[4000], &[1792], &[300, 7], &[1000, 1000, 256]];
    for (round, sizes) in all.iter().flat_map(|sizes| [(0, sizes), (1, sizes)]) {
        let (master, slave) = pair();
        change(&slave, |modes| {
            modes.c_oflag &= !libc::OPOST;
            modes.c_iflag = 0;
            modes.c_lflag &= !(libc::ECHO | libc::ICANON | libc::ISIG | libc::IEXTEN);
        });
        if round == 1 {
            // Small buffers that the kernel keeps let it hold more.
            for (to, from) in [(&slave, &master), (&master, &slave)] {
                fill(to, &[100]);
                reads(from.as_fd());
            }
        }
        let (output, input) = (fill(&slave, sizes), fill(&master, sizes));
        let at = format!("{sizes:?}: {} and {} bytes", output.len(), input.len());
        assert!(output.len() > 4000 && input.len() > 4000, "{at}");
        let dumped = dump(&[master.as_fd(), slave.as_fd()]);
        let again = dump(&[master.as_fd(), slave.as_fd()]);
        assert_eq!(dumped.context.blobs, again.context.blobs, "{at}");
        assert!(reads(master.as_fd()).concat() == output, "{at}");
        assert!(reads(slave.as_fd()).concat() == input, "{at}");
        drop((master, slave));
        let back = dumped.restore();
        assert!(reads(back.fds[0].as_fd()).concat() == output, "{at}");
        assert!(reads(back.fds[1].as_fd()).concat() == input, "{at}");
    }
}

/// Writes pieces of these sizes in turn until nothing more is taken.
fn fill(to: &OwnedFd, sizes: &[usize]) -> Vec<u8> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let before = OFlag::from_bits_truncate(fcntl(to, FcntlArg::F_GETFL).unwrap());
    fcntl(to, FcntlArg::F_SETFL(before | OFlag::O_NONBLOCK)).unwrap();
    let mut all = Vec::new();
    let mut quiet = 0;
    for size in sizes.iter().cycle() {
        let bytes: Vec<u8> = (0..*size).map(|n| ((all.len() + n) % 251) as u8).collect();
        match nix::unistd::write(to, &bytes) {
            Ok(count) => all.extend_from_slice(&bytes[..count]),
            Err(_) if quiet > 20 => break,
            Err(_) => {
                quiet += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
    fcntl(to, FcntlArg::F_SETFL(before)).unwrap();
    all
}

#[test]
fn stopped_packet_mode_and_closed_slaves() {
    let _alone = alone();
    let (master, slave) = pair();
    write(&slave, b"before");
    write(&master, b"\x13");
    // In packet mode a stop would leave a status to be read.
    while poll_one(&slave, libc::POLLOUT, Duration::ZERO).unwrap() & libc::POLLOUT != 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    tty::set_packet_mode(&master, true).unwrap();
    let dumped = dump(&[master.as_fd(), slave.as_fd()]);
    drop((master, slave));
    let back = dumped.restore();
    assert!(tty::packet_mode(&back.fds[0]).unwrap());
    assert_eq!(reads(back.fds[0].as_fd()).concat(), b"\0before");
    let again = dump(&[back.fds[0].as_fd(), back.fds[1].as_fd()]);
    let text = serde_json::to_string(&again.files).unwrap();
    assert!(text.contains("\"stopped\":true"), "{text}");
    write(&back.fds[0], b"\x11");
    write(&back.fds[1], b"z");
    assert_eq!(reads(back.fds[0].as_fd()).last().unwrap(), b"\0z");
    drop(back);

    let (master, slave) = pair();
    write(&slave, b"left");
    drop(slave);
    let dumped = dump(&[master.as_fd()]);
    drop(master);
    let back = dumped.restore();
    let mut piece = [0u8; 16];
    assert_eq!(nix::unistd::read(&back.fds[0], &mut piece).unwrap(), 4);
    assert_eq!(nix::unistd::read(&back.fds[0], &mut piece), Err(nix::errno::Errno::EIO));
    drop(back);

    let (master, slave) = pair();
    drop(master);
    let back = dump(&[slave.as_fd()]).restore();
    assert_eq!(nix::unistd::write(&back.fds[0], b"x"), Err(nix::errno::Errno::EIO));
}

#[test]
fn the_console_goes_to_the_launcher_and_strangers_are_refused() {
    let _alone = alone();
    let (master, slave) = pair();
    let Err(refusal) = try_dump(&[slave.as_fd()], DumpContext::default()) else { panic!() };
    assert!(refusal.to_string().contains("outside of the job"), "{refusal}");
    write(&slave, b"prompt");
    let stat = nix::sys::stat::fstat(&slave).unwrap();
    let mut context = DumpContext {
        terminal: Some(ConsoleTerminal::Launchers(master.try_clone().unwrap())),
        ..DumpContext::default()
    };
    context.stdio.insert((stat.st_dev, stat.st_ino), StdioRole::Terminal);
    let mut dumped = try_dump(&[slave.as_fd()], context).unwrap();
    dumped.context.terminal = None;
    drop((master, slave));
    let mut back = dumped.restore();
    let master = back.console.terminal.take().unwrap();
    assert_eq!(reads(master.as_fd()).concat(), b"prompt");
    write(&back.fds[0], b"$");
    assert_eq!(reads(master.as_fd()).concat(), b"$");
}

#[test]
fn what_packet_mode_tells_survives_a_dump_and_a_restore() {
    let _alone = alone();
    let (master, slave) = pair();
    change(&slave, |modes| modes.c_lflag &= !libc::ECHO);
    tty::set_packet_mode(&master, true).unwrap();
    // SAFETY: the argument is a number.
    assert_eq!(unsafe { libc::ioctl(slave.as_raw_fd(), libc::TCFLSH, libc::TCIOFLUSH) }, 0);
    change(&slave, |modes| modes.c_iflag &= !libc::IXON);
    write(&slave, b"output");
    write(&master, b"input\n");
    // TIOCPKT_FLUSHREAD, TIOCPKT_FLUSHWRITE, TIOCPKT_NOSTOP
    let told: [&[u8]; 2] = [&[1 | 2 | 16], b"\0output"];
    let dumped = dump(&[master.as_fd(), slave.as_fd()]);
    assert_eq!(reads(master.as_fd()), told, "after the dump");
    assert_eq!(reads(slave.as_fd()), [b"input\n"]);
    drop((master, slave));
    let back = dumped.restore();
    assert_eq!(reads(back.fds[0].as_fd()), told, "after the restore");
    assert_eq!(reads(back.fds[1].as_fd()), [b"input\n"]);
}
