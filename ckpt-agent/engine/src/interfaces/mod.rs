//! What becomes of everything that a program can ask of the kernel and ckptd would have to keep: options of prctl(2) and
//! other attributes of processes, socket options, commands of fcntl(2), flags of open(2), mmap(2), madvise(2) and
//! clone(2), and kinds of descriptors. [The reference](../../../../../docs/src/reference/interfaces.md) is made of these
//! tables, and the kernel's headers are compared with them, so that nothing new is passed over.

mod attributes;
mod clone;
mod descriptors;
mod files;
mod memory;
mod prctl;
mod sockets;
#[cfg(test)]
mod tests;

/// What becomes of one of them at a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is as it was.
    Kept,
    /// It comes back in another form.
    Changed,
    /// It is as in any new process, without a line.
    Default,
    /// The checkpoint is refused.
    Refused,
    /// It asks, or acts at once, or does nothing.
    Nothing,
    /// Processors that ckptd does not run on have it.
    Elsewhere,
}

impl Fate {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Changed => "changed",
            Self::Default => "default",
            Self::Refused => "refused",
            Self::Nothing => "nothing to keep",
            Self::Elsewhere => "other processors",
        }
    }
}

/// Its name, its fate, and what limits that.
pub type Row = (&'static str, Fate, &'static str);

/// The entries of one interface.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// All of them.
    pub rows: &'static [Row],
}

/// All interfaces.
pub const SECTIONS: &[Section] = &[
    Section { title: "Descriptors", rows: descriptors::ROWS },
    Section { title: "Flags of open(2)", rows: files::FLAGS },
    Section { title: "fcntl(2)", rows: files::COMMANDS },
    Section { title: "Flags of mmap(2)", rows: memory::MAPPINGS },
    Section { title: "madvise(2)", rows: memory::ADVICE },
    Section { title: "Flags of clone(2) and unshare(2)", rows: clone::ROWS },
    Section { title: "prctl(2)", rows: prctl::ROWS },
    Section { title: "Other attributes of processes", rows: attributes::ROWS },
    Section { title: "Options of all sockets", rows: sockets::SOCKET },
    Section { title: "Options of IPv4", rows: sockets::IP },
    Section { title: "Options of IPv6", rows: sockets::IPV6 },
    Section { title: "Options of TCP", rows: sockets::TCP },
    Section { title: "Options of UDP", rows: sockets::UDP },
    Section { title: "Options of netlink", rows: sockets::NETLINK },
    Section { title: "Options of packet sockets", rows: sockets::PACKET },
];
