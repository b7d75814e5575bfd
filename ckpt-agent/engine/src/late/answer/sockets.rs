//! What the kernel tells of sockets and of the processes that call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::late::notify::Notification;
use crate::late::sockaddr;
use crate::proc::read_text;
use crate::sys::pidfd::PidFd;
use crate::sys::{abi, sockopt};
use crate::trace::ProcessMemory;

/// TCP_CLOSE (include/net/tcp_states.h): neither connected nor listening.
pub(super) const CLOSED: u8 = 7;
/// TCP_LISTEN, as /proc/net/tcp shows it.
pub(super) const LISTENING: &str = "0A";

/// A TCP socket of a process.
pub(super) struct Target {
    pub(super) copy: OwnedFd,
    pub(super) cookie: u64,
    pub(super) v6: bool,
}

/// A copy of the descriptor that a call is about.
pub(super) fn copy_of(call: &Notification) -> Option<OwnedFd> {
    let process = PidFd::open(call.tid).or_else(|error| {
        let status = read_text(&format!("/proc/{}/status", call.tid)).ok().flatten();
        let leader = status.as_deref().and_then(thread_group);
        leader.map_or(Err(error), PidFd::open)
    });
    process.ok()?.descriptor(call.arguments[0] as i32).ok()
}

pub(super) fn target_of(call: &Notification) -> Option<Target> {
    let copy = copy_of(call)?;
    let option = |name| sockopt::get_int(&copy, libc::SOL_SOCKET, name).ok();
    let v6 = match option(libc::SO_DOMAIN)? {
        libc::AF_INET => false,
        libc::AF_INET6 => true,
        _ => return None,
    };
    if option(libc::SO_PROTOCOL)? != libc::IPPROTO_TCP {
        return None;
    }
    let cookie = cookie_of(copy.as_fd())?;
    Some(Target { copy, cookie, v6 })
}

/// Field 28 of /proc/PID/stat (proc(5)).
pub(super) fn start_of_stack(stat: &str) -> Option<u64> {
    let stack = stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(25)?.parse().ok()?;
    // 0 and 1 are told to those who may not know.
    Some(stack).filter(|stack| *stack > 1)
}

/// Whether anybody on this machine listens at that port.
pub(super) fn is_listening(port: u16) -> bool {
    sockets_at(port).iter().any(|(state, _)| state == LISTENING)
}

pub(super) fn thread_group(status: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// IPV6_V6ONLY (ipv6(7)) of an AF_INET6 socket.
pub fn is_v6_only(fd: BorrowedFd<'_>) -> bool {
    sockopt::get_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).is_ok_and(|only| only != 0)
}

/// SO_COOKIE. `None`: no socket.
pub fn cookie_of(fd: BorrowedFd<'_>) -> Option<u64> {
    let bytes = sockopt::get_bytes(fd, libc::SOL_SOCKET, abi::SO_COOKIE, 8).ok()?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

pub(super) fn tcp_state(fd: BorrowedFd<'_>) -> Option<u8> {
    sockopt::get_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, 8).ok()?.first().copied()
}

pub(super) fn is_non_blocking(fd: BorrowedFd<'_>) -> Option<bool> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = fcntl(fd, FcntlArg::F_GETFL).ok()?;
    Some(OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK))
}

/// The address that bind or connect names.
pub(super) fn read_address(call: &Notification) -> Option<Vec<u8>> {
    let length = usize::try_from(call.arguments[2] as i32).ok()?;
    let mut bytes = vec![0; length.min(sockaddr::LONGEST)];
    ProcessMemory::of(call.tid).read(call.arguments[1], &mut bytes).ok()?;
    Some(bytes)
}

/// Whether a process of this instance has a socket bound to that port.
pub(super) fn is_own_port(port: u16) -> bool {
    let inodes: Vec<String> =
        sockets_at(port).into_iter().map(|(_, inode)| format!("socket:[{inode}]")).collect();
    let numbers = |path: &str| -> Vec<String> {
        std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
            .collect()
    };
    let own = std::process::id().to_string();
    !inodes.is_empty()
        && numbers("/proc").iter().filter(|pid| **pid != own).any(|pid| {
            let folder = format!("/proc/{pid}/fd");
            numbers(&folder).iter().any(|fd| {
                std::fs::read_link(format!("{folder}/{fd}"))
                    .is_ok_and(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str()))
            })
        })
}

/// State and inode of all sockets at a port of this machine.
pub(super) fn sockets_at(port: u16) -> Vec<(String, String)> {
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .iter()
        .filter_map(|path| read_text(path).ok().flatten())
        .flat_map(|text| text.lines().filter_map(|line| socket_at(line, port)).collect::<Vec<_>>())
        .collect()
}

/// State and inode in a line of /proc/net/tcp whose socket has that port (proc(5)).
fn socket_at(line: &str, port: u16) -> Option<(String, String)> {
    let mut words = line.split_ascii_whitespace();
    let (_, local) = words.nth(1)?.rsplit_once(':')?;
    let at = u16::from_str_radix(local, 16).ok()?;
    let state = words.nth(1)?;
    let inode = words.nth(5)?;
    (at == port && inode != "0").then(|| (state.to_owned(), inode.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_socket_in_the_kernels_list() {
        let line = "   0: 0100007F:1DB0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0000000000000000 100 0 0 10 0";
        assert_eq!(socket_at(line, 7600), Some((LISTENING.to_owned(), "12345".to_owned())));
        assert_eq!(socket_at(line, 7601), None);
        assert_eq!(socket_at("  sl  local_address rem_address   st", 7600), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(port));
        drop(listener);
        assert!(!is_listening(port));
    }

    #[test]
    fn finds_the_start_of_the_stack() {
        let own = read_text("/proc/self/stat").unwrap().unwrap();
        let stack = start_of_stack(&own).unwrap();
        let maps = read_text("/proc/self/maps").unwrap().unwrap();
        let line = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let (from, rest) = line.split_once('-').unwrap();
        let to = rest.split_once(' ').unwrap().0;
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        assert!((number(from)..number(to)).contains(&stack));
    }

    #[test]
    fn finds_the_process_of_a_thread() {
        assert_eq!(thread_group("Name:\tx\nTgid:\t17\nPid:\t18\n"), Some(17));
    }
}
