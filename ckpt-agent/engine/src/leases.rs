//! Leases on files (fcntl(2), F_SETLEASE): whoever opens such a file has its holder told, and waits. So a checkpoint opens none.

use std::collections::BTreeSet;

use super::proc::read_text;

/// The list of locks of all processes (proc_locks(5)).
const LOCKS: &str = "/proc/locks";

/// Inode numbers of files on which anybody has a lease.
#[derive(Debug, Clone, Default)]
pub struct Leased(BTreeSet<u64>);

impl Leased {
    /// Those of this moment, where the list may be read: phones keep it to themselves. Those of a job's own descriptors are
    /// told by these, too.
    pub fn now() -> Self {
        Self::parse(&read_text(LOCKS).ok().flatten().unwrap_or_default())
    }

    /// `3: LEASE  ACTIVE    WRITE 8107 fe:00:10010793 0 EOF`
    fn parse(text: &str) -> Self {
        let inode = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let kind = fields.iter().position(|field| matches!(*field, "LEASE" | "DELEG"))?;
            fields.get(kind + 4)?.rsplit(':').next()?.parse().ok()
        };
        Self(text.lines().filter_map(inode).collect())
    }

    /// Adds a file by what a descriptor's fdinfo says. The list leaves out those whose holders inherited them from a process that
    /// has ended (fs/locks.c, locks_show()).
    pub fn add(&mut self, inode: u64, fdinfo: &str) {
        if !Self::parse(fdinfo).0.is_empty() {
            self.0.insert(inode);
        }
    }

    /// Whether a file may be one of them. Devices are not compared: some file systems show others than the list does.
    pub fn has(&self, inode: u64) -> bool {
        self.0.contains(&inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_found_in_the_list() {
        let leased = Leased::parse(
            "1: FLOCK  ADVISORY  WRITE 8107 fe:00:5 0 EOF\n\
             2: LEASE  ACTIVE    WRITE 8107 fe:00:10010793 0 EOF\n\
             3: -> LEASE  BREAKING  READ 8107 fe:00:7 0 EOF\n\
             4: DELEG  ACTIVE    READ 8107 00:1f:9 0 EOF\n\
             nonsense LEASE\n",
        );
        let mut of_descriptor = Leased::default();
        of_descriptor.add(3, "lock:\t1: LEASE  ACTIVE    READ 8107 fe:00:10010793 0 EOF\n");
        of_descriptor.add(4, "lock:\t1: FLOCK  ADVISORY  WRITE 8107 fe:00:5 0 EOF\n");
        assert_eq!(of_descriptor.0, BTreeSet::from([3]));
        assert_eq!(leased.0, BTreeSet::from([7, 9, 10_010_793]));
    }

    #[test]
    fn an_own_lease_is_in_the_list() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = file.as_file().metadata().unwrap().ino();
        assert!(!Leased::now().has(inode));
        // SAFETY: takes numbers only.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } == 0 {
            assert!(Leased::now().has(inode));
        }
    }
}
