//! Groups whose members may use ICMP sockets (icmp(7), ping_group_range), which each network namespace has its own of.

use std::fs;
use std::io;

use nix::unistd::{getegid, getgroups};

const PATH: &str = "/proc/sys/net/ipv4/ping_group_range";

/// The lowest and the highest of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingGroups {
    lowest: u32,
    highest: u32,
}

impl PingGroups {
    /// Those of the caller's network namespace; `None` where nothing tells.
    pub fn here() -> Option<Self> {
        Self::parse(&fs::read_to_string(PATH).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse);
        Some(Self { lowest: numbers.next()?.ok()?, highest: numbers.next()?.ok()? })
    }

    /// Whether a group is one of them.
    pub fn has(self, group: u32) -> bool {
        (self.lowest..=self.highest).contains(&group)
    }

    /// Whether any of the calling thread's groups is one of them.
    pub fn has_any_own(self) -> bool {
        let others = getgroups().unwrap_or_default();
        others.into_iter().chain([getegid()]).any(|group| self.has(group.as_raw()))
    }

    /// Makes them those of the caller's network namespace. A user namespace takes only numbers that it knows
    /// (net/ipv4/sysctl_net_ipv4.c, ipv4_ping_group_range).
    ///
    /// # Errors
    /// Failed writes; EINVAL in such a namespace.
    pub fn set(self) -> io::Result<()> {
        fs::write(PATH, format!("{} {}", self.lowest, self.highest))
    }

    /// The calling thread's effective group alone.
    pub fn own() -> Self {
        let own = getegid().as_raw();
        Self { lowest: own, highest: own }
    }
}

#[cfg(test)]
mod tests {
    use super::PingGroups;

    #[test]
    fn groups_are_read() {
        let parse = PingGroups::parse;
        let range = |lowest, highest| Some(PingGroups { lowest, highest });
        assert_eq!(parse("0\t2147483647\n"), range(0, 2_147_483_647));
        // Nobody, as kernels begin with.
        assert_eq!(parse("1\t0\n"), range(1, 0));
        assert!(!PingGroups { lowest: 1, highest: 0 }.has(1));
        assert!(parse("").is_none() && parse("1").is_none());
    }
}
