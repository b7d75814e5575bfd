//! Network namespaces with nothing but their loopback device, which has nothing but the addresses that it gets when it comes up.

use std::net::Ipv6Addr;

use super::super::super::error::Result;
use super::super::super::graph::NamespaceContent;
use super::super::super::proc::read_text;
use super::content::file_of;
use super::refuse;

/// Addresses of a loopback device, in fib_trie. It keeps the first ones when it goes down.
const ADDRESSES: [&str; 3] = ["127.0.0.0", "127.0.0.1", UP];
/// What it has while it is up alone: the address to which it broadcasts.
const UP: &str = "127.255.255.255";
/// The metric of the route to everywhere that there is without any (IP6_RT_PRIO_..., net/ipv6/route.c, ip6_null_entry).
const NO_ROUTE: u32 = u32::MAX;

/// What a network namespace says.
///
/// # Errors
/// A refusal of devices, addresses and routes that a new one has not.
pub(super) fn content(pid: i32) -> Result<NamespaceContent> {
    let with = |what: String| {
        Err(refuse(format!("is in a network namespace of its own, in which there is {what}")))
    };
    let devices = file_of(pid, "net/dev")?;
    let mut names = devices.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim()));
    if let Some(name) = names.find(|name| *name != "lo") {
        return with(format!("a device {name}"));
    }
    let tree = file_of(pid, "net/fib_trie")?;
    let addresses: Vec<&str> = tree.lines().filter_map(address).collect();
    if let Some(other) = addresses.iter().find(|one| !ADDRESSES.contains(one)) {
        return with(format!("an address or a route {other}"));
    }
    // A kernel without IPv6, or without groups, has no such list.
    let text = |name: &str| -> Result<String> {
        Ok(read_text(&format!("/proc/{pid}/net/{name}"))?.unwrap_or_default())
    };
    let others = text("if_inet6")?;
    if let Some(other) = others.lines().filter_map(address6).find(|one| !one.is_loopback()) {
        return with(format!("an address {other}"));
    }
    let routes = text("ipv6_route")?;
    if let Some(other) = routes.lines().filter_map(route6).find(|one| !is_usual(*one)) {
        return with(format!("a route to {}", other.0));
    }
    let up = addresses.contains(&UP);
    if !up && text("igmp")?.lines().any(is_listening) {
        return with("a loopback device without its address".to_owned());
    }
    Ok(NamespaceContent::Network { loopback_up: up })
}

/// The address of a leaf of fib_trie.
fn address(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("|-- ")
}

/// The address of a line of if_inet6, or with which a line of ipv6_route begins.
fn address6(line: &str) -> Option<Ipv6Addr> {
    let digits = line.split_ascii_whitespace().next()?;
    let is_whole = digits.len() == 32;
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_whole)?;
    Some(Ipv6Addr::from(number))
}

/// Where a line of ipv6_route leads, and its metric (net/ipv6/route.c).
fn route6(line: &str) -> Option<(Ipv6Addr, u32)> {
    let metric = line.split_ascii_whitespace().nth(5)?;
    Some((address6(line)?, u32::from_str_radix(metric, 16).ok()?))
}

/// Whether a loopback device has this route by itself.
fn is_usual((to, metric): (Ipv6Addr, u32)) -> bool {
    to.is_loopback() || to.is_multicast() || to.is_unspecified() && metric == NO_ROUTE
}

/// A line of igmp that is about the loopback device, which is in a group while it is up.
fn is_listening(line: &str) -> bool {
    line.split_ascii_whitespace().nth(1) == Some("lo")
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!(address("     +-- 127.0.0.0/8 2 0 2"), None);
        assert_eq!(address("        |-- 10.1.2.3"), Some("10.1.2.3"));
        assert_eq!(address("           /32 host LOCAL"), None);
        assert_eq!(address("Main:"), None);
        let line = "fd000000000000000000000000000001 01 80 00 80       lo";
        assert_eq!(address6(line), "fd00::1".parse().ok());
        assert_eq!(address6("fd00 01 80 00 80 lo"), None);
    }

    #[test]
    fn usual_routes_are_known() {
        let line = |to: &str, metric: &str| {
            let none = "0".repeat(32);
            format!("{to} 40 {none} 00 {none} {metric} 00000001 00000000 00200200       lo")
        };
        let usual = |to: &str, metric: &str| route6(&line(to, metric)).map(is_usual);
        let (all, own) = ("0".repeat(32), format!("{}1", "0".repeat(31)));
        assert_eq!(usual(&all, "ffffffff"), Some(true));
        assert_eq!(usual(&own, "00000000"), Some(true));
        assert_eq!(usual(&all, "00000400"), Some(false));
        assert_eq!(usual("fd010000000000000000000000000000", "00000400"), Some(false));
        assert_eq!(route6("0"), None);
    }

    #[test]
    fn the_loopback_device_is_told_by_its_address() {
        std::thread::spawn(|| {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                return;
            }
            // SAFETY: a call without arguments.
            let own = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
            let found = content(own);
            let expected = NamespaceContent::Network { loopback_up: false };
            assert!(found.is_ok_and(|found| found == expected));
        })
        .join()
        .unwrap();
    }
}
