use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signalfd::{SfdFlags, SigSet, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{read, write};

use crate::harness::{alone, dump, flags_of, same};

fn number(fd: impl AsFd) -> nix::Result<u64> {
    let mut bytes = [0; 8];
    read(fd, &mut bytes).map(|_| u64::from_ne_bytes(bytes))
}

#[test]
fn event_counters() {
    let _alone = alone();
    let flags = EfdFlags::EFD_NONBLOCK;
    let plain = EventFd::from_value_and_flags(0, flags).unwrap();
    write(&plain, &(1_u64 << 40).to_ne_bytes()).unwrap();
    let semaphore = EventFd::from_value_and_flags(3, flags | EfdFlags::EFD_SEMAPHORE).unwrap();
    let empty = EventFd::from_value_and_flags(0, flags).unwrap();
    let new = dump(&[&plain, &semaphore, &empty]).unwrap().restore().unwrap().fds;
    assert_eq!(number(&new[0]), Ok(1 << 40));
    assert_eq!((number(&new[1]), number(&new[1])), (Ok(1), Ok(1)));
    assert_eq!(number(&new[2]), Err(nix::errno::Errno::EAGAIN));
}

fn fdinfo(fd: &OwnedFd) -> String {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap()
}

#[test]
fn timers() {
    let _alone = alone();
    let make = |clock, expiration, flags| {
        let timer = TimerFd::new(clock, TimerFlags::TFD_NONBLOCK).unwrap();
        if let Some(expiration) = expiration {
            timer.set(expiration, flags).unwrap();
        }
        timer
    };
    let none = TimerSetTimeFlags::empty();
    let absolute = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
    let seconds = |s| TimeSpec::new(s, 0);
    let monotonic = ClockId::CLOCK_MONOTONIC;
    let disarmed = make(monotonic, None, none);
    let once = make(monotonic, Some(Expiration::OneShot(seconds(100))), none);
    let fired = make(monotonic, Some(Expiration::OneShot(TimeSpec::new(0, 1))), none);
    let period = TimeSpec::new(0, 20_000_000);
    let ticking = make(monotonic, Some(Expiration::Interval(period)), none);
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME).unwrap().tv_sec();
    let wall = Some(Expiration::OneShot(seconds(now + 50)));
    let wall = make(ClockId::CLOCK_REALTIME, wall, absolute);
    std::thread::sleep(Duration::from_millis(50));
    let fds: [&dyn AsFd; 5] = [&disarmed, &once, &fired, &ticking, &wall];
    let image = dump(&fds).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let new = image.restore().unwrap().fds;
    let again = nix::errno::Errno::EAGAIN;
    assert!(flags_of(&new[0]) & libc::O_NONBLOCK != 0);
    assert!(fdinfo(&new[0]).contains("it_value: (0, 0)"));
    assert_eq!(number(&new[0]), Err(again));
    assert!(fdinfo(&new[1]).contains("it_value: (99, "), "not later by the time between");
    assert_eq!((number(&new[2]), number(&new[2])), (Ok(1), Err(again)));
    let ticks = number(&new[3]).unwrap();
    assert!((2..=8).contains(&ticks), "{ticks}");
    std::thread::sleep(Duration::from_millis(50));
    assert!(number(&new[3]).is_ok(), "goes on ticking");
    let wall = new.into_iter().next_back().unwrap();
    assert!(fdinfo(&wall).contains("settime flags: 01"));
    // `it_value: (48, 123)`
    let text = fdinfo(&wall);
    let value = text.lines().find_map(|line| line.strip_prefix("it_value: (")).unwrap();
    let (seconds, ns) = value.trim_end_matches(')').split_once(", ").unwrap();
    let left = Duration::new(seconds.parse().unwrap(), ns.parse().unwrap());
    let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME).unwrap();
    let expected = Duration::from_secs((now + 50) as u64) - Duration::from(clock);
    assert!(left.abs_diff(expected) < Duration::from_millis(200), "{left:?} {expected:?}");
}

#[test]
fn signal_descriptors() {
    let _alone = alone();
    let mut mask = SigSet::empty();
    mask.add(nix::sys::signal::SIGUSR1);
    mask.add(nix::sys::signal::SIGCHLD);
    let reader = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK).unwrap();
    let old = reader.as_fd().try_clone_to_owned().unwrap();
    let new = dump(&[&reader]).unwrap().restore().unwrap().fds;
    let line = |fd| fdinfo(fd).lines().find(|l| l.starts_with("sigmask")).unwrap().to_owned();
    assert_eq!(line(&new[0]), line(&old));
    assert!(flags_of(&new[0]) & libc::O_NONBLOCK != 0);
}

fn wait(epoll: &OwnedFd) -> Vec<u64> {
    let epoll = Epoll(epoll.try_clone().unwrap());
    let mut events = [EpollEvent::empty(); 16];
    let count = epoll.wait(&mut events, EpollTimeout::ZERO).unwrap();
    let mut found: Vec<u64> = events[..count].iter().map(EpollEvent::data).collect();
    found.sort_unstable();
    found
}

fn add(epoll: &Epoll, fd: BorrowedFd<'_>, flags: EpollFlags, data: u64) {
    epoll.add(fd, EpollEvent::new(flags, data)).unwrap();
}

fn counter() -> EventFd {
    EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).unwrap()
}

/// The `tfd:` lines but for what differs from inode to inode.
fn registrations(fd: &OwnedFd) -> Vec<String> {
    let text = fdinfo(fd);
    let lines = text.lines().filter(|line| line.starts_with("tfd:"));
    let mut found: Vec<String> =
        lines.map(|line| line.split("pos:").next().unwrap().trim().to_owned()).collect();
    found.sort();
    found
}

#[test]
fn epoll_modes_and_data() {
    let _alone = alone();
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    let counters: Vec<EventFd> = (0..5).map(|_| counter()).collect();
    let modes = [
        EpollFlags::EPOLLIN,
        EpollFlags::EPOLLIN | EpollFlags::EPOLLET,
        EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT,
        EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT | EpollFlags::EPOLLET,
        EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE,
    ];
    for (index, counter) in counters.iter().enumerate() {
        add(&epoll, counter.as_fd(), modes[index], u64::MAX - index as u64);
    }
    // The one-shot ones fire once, and are disabled from then on.
    counters.iter().for_each(|counter| counter.write(1).map(drop).unwrap());
    let fd = epoll.0.as_fd().try_clone_to_owned().unwrap();
    assert_eq!(wait(&fd).len(), 5);
    counters.iter().for_each(|counter| counter.read().map(drop).unwrap());
    let before = registrations(&fd);
    assert!(before.iter().any(|line| line.contains("events: 40000000 ")), "{before:?}");
    let mut all: Vec<&dyn AsFd> = vec![&epoll.0];
    all.extend(counters.iter().map(|counter| counter as &dyn AsFd));
    let image = dump(&all).unwrap();
    let numbers: Vec<i32> = counters.iter().map(|c| c.as_fd().as_raw_fd()).collect();
    assert_eq!(wait(&fd), [0; 0], "the live one is as it was");
    let new = image.restore().unwrap().fds;
    assert_eq!(registrations(&new[0]), before);
    assert_eq!(wait(&new[0]), [0; 0]);
    for fd in &new[1..] {
        write(fd, &1_u64.to_ne_bytes()).unwrap();
    }
    assert_eq!(wait(&new[0]), [u64::MAX - 4, u64::MAX - 1, u64::MAX]);
    assert_eq!(wait(&new[0]), [u64::MAX - 4, u64::MAX], "the edge is past");
    // The numbers that were borrowed hold what they held.
    for (counter, number) in counters.iter().zip(numbers) {
        assert_eq!(counter.as_fd().as_raw_fd(), number);
        assert!(counter.read().is_err());
    }
}

#[test]
fn epoll_target_whose_descriptor_is_closed() {
    let _alone = alone();
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    let one = counter();
    let kept = one.as_fd().try_clone_to_owned().unwrap();
    add(&epoll, one.as_fd(), EpollFlags::EPOLLIN, 1);
    let number = one.as_fd().as_raw_fd();
    drop(one);
    // The number goes to another object, which is registered under it too.
    let two = counter();
    assert_eq!(two.as_fd().as_raw_fd(), number);
    add(&epoll, two.as_fd(), EpollFlags::EPOLLIN, 2);
    let new = dump(&[&epoll.0, &kept, &two]).unwrap().restore().unwrap().fds;
    write(&new[1], &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(wait(&new[0]), [1]);
    write(&new[2], &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(wait(&new[0]), [1, 2]);
    let text = dump(&[&epoll.0, &two]).unwrap_err().to_string();
    assert!(text.starts_with("process 42 (test), descriptor "), "{text}");
    assert!(text.contains(&format!("descriptor {number}, which no process")), "{text}");
}

#[test]
fn epoll_in_epoll() {
    let _alone = alone();
    let (outer, inner) = (
        Epoll::new(EpollCreateFlags::empty()).unwrap(),
        Epoll::new(EpollCreateFlags::empty()).unwrap(),
    );
    let counter = counter();
    let dup = outer.0.as_fd().try_clone_to_owned().unwrap();
    add(&outer, inner.0.as_fd(), EpollFlags::EPOLLIN, 7);
    add(&inner, counter.as_fd(), EpollFlags::EPOLLIN, 8);
    let new = dump(&[&outer.0, &inner.0, &counter, &dup]).unwrap().restore().unwrap().fds;
    assert!(same(&new[0], &new[3]));
    assert_eq!(wait(&new[0]), [0; 0]);
    write(&new[2], &1_u64.to_ne_bytes()).unwrap();
    assert_eq!((wait(&new[0]), wait(&new[1])), (vec![7], vec![8]));
}
