//! The tables against the kernel's headers, against what is read of sockets, and against the document made of them.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Fate, Row, SECTIONS, clone, files, memory, prctl, sockets};

/// The document.
const DOCUMENT: &str = "../../docs/src/reference/interfaces.md";
/// Set to write the document instead of comparing it.
const WRITE: &str = "CKPTD_WRITE_DOCUMENTS";
/// Of how many columns its lines are.
const COLUMNS: usize = 120;

/// Where the options of prctl(2) are.
const PRCTL: &str = "linux/prctl.h";
/// The level of raw sockets (include/linux/socket.h).
const SOL_RAW: i32 = 255;

/// What a header defines that a table must have.
struct Header {
    path: &'static str,
    prefixes: &'static [&'static str],
    /// Names that begin like this are values of one of the entries, not entries.
    values: &'static [&'static str],
    rows: &'static [&'static [Row]],
    /// There are no fewer.
    least: usize,
}

const HEADERS: &[Header] = &[
    Header { path: PRCTL, prefixes: &["PR_"], values: &[], rows: &[prctl::ROWS], least: 60 },
    Header {
        path: "asm-generic/socket.h",
        prefixes: &["SO_"],
        values: &[],
        rows: &[sockets::SOCKET],
        least: 60,
    },
    Header {
        path: "linux/in.h",
        prefixes: &["IP_", "MCAST_"],
        values: &[
            "IP_PMTUDISC_",
            "IP_DEFAULT_",
            "MCAST_EXCLUDE",
            "MCAST_INCLUDE",
            "IP_MSFILTER_SIZE",
        ],
        rows: &[sockets::IP],
        least: 40,
    },
    Header {
        path: "linux/in6.h",
        prefixes: &["IPV6_"],
        values: &[
            "IPV6_FL_",
            "IPV6_FLOWINFO_FLOWLABEL",
            "IPV6_FLOWINFO_PRIORITY",
            "IPV6_PRIORITY_",
            "IPV6_TLV_",
            "IPV6_PMTUDISC_",
            "IPV6_PREFER_SRC_",
        ],
        rows: &[sockets::IPV6],
        least: 50,
    },
    Header {
        path: "linux/tcp.h",
        prefixes: &["TCP_"],
        values: &[
            "TCP_MSS_",
            "TCP_REPAIR_ON",
            "TCP_REPAIR_OFF",
            "TCP_MD5SIG_MAXKEYLEN",
            "TCP_MD5SIG_FLAG_",
            "TCP_AO_MAXKEYLEN",
            "TCP_AO_KEYF_",
            "TCP_RECEIVE_ZEROCOPY_FLAG_",
        ],
        rows: &[sockets::TCP],
        least: 35,
    },
    Header {
        path: "linux/udp.h",
        prefixes: &["UDP_"],
        values: &["UDP_ENCAP_"],
        rows: &[sockets::UDP],
        least: 5,
    },
    Header {
        path: "linux/netlink.h",
        prefixes: &[
            "NETLINK_ADD_",
            "NETLINK_DROP_",
            "NETLINK_LIST",
            "NETLINK_PKTINFO",
            "NETLINK_BROADCAST",
            "NETLINK_NO_",
            "NETLINK_RX_",
            "NETLINK_TX_",
            "NETLINK_CAP_",
            "NETLINK_EXT_",
            "NETLINK_GET_",
        ],
        values: &[],
        rows: &[sockets::NETLINK],
        least: 11,
    },
    Header {
        path: "linux/if_packet.h",
        prefixes: &["PACKET_"],
        values: &[
            // Kinds of packets, of groups, of members.
            "PACKET_HOST",
            "PACKET_BROADCAST",
            "PACKET_MULTICAST",
            "PACKET_OTHERHOST",
            "PACKET_OUTGOING",
            "PACKET_LOOPBACK",
            "PACKET_USER",
            "PACKET_KERNEL",
            "PACKET_FASTROUTE",
            "PACKET_FANOUT_HASH",
            "PACKET_FANOUT_LB",
            "PACKET_FANOUT_CPU",
            "PACKET_FANOUT_ROLLOVER",
            "PACKET_FANOUT_RND",
            "PACKET_FANOUT_QM",
            "PACKET_FANOUT_CBPF",
            "PACKET_FANOUT_EBPF",
            "PACKET_FANOUT_FLAG_",
            "PACKET_MR_",
        ],
        rows: &[sockets::PACKET],
        least: 20,
    },
    Header {
        path: "asm-generic/fcntl.h",
        prefixes: &["F_", "O_"],
        values: &[
            "F_OWNER_",
            "F_RDLCK",
            "F_WRLCK",
            "F_UNLCK",
            "F_EXLCK",
            "F_SHLCK",
            "F_LINUX_SPECIFIC_BASE",
            // The same ones on machines of 32 bits.
            "F_GETLK64",
            "F_SETLK64",
            "F_SETLKW64",
        ],
        rows: &[files::COMMANDS, files::FLAGS],
        least: 35,
    },
    Header {
        path: "linux/fcntl.h",
        prefixes: &["F_"],
        values: &["F_SEAL_"],
        rows: &[files::COMMANDS],
        least: 12,
    },
    Header {
        path: "asm-generic/mman-common.h",
        prefixes: &["MAP_", "MADV_", "PROT_"],
        values: &["MAP_TYPE"],
        rows: &[memory::MAPPINGS, memory::ADVICE],
        least: 35,
    },
    Header {
        path: "asm-generic/mman.h",
        prefixes: &["MAP_"],
        values: &[],
        rows: &[memory::MAPPINGS],
        least: 5,
    },
    Header {
        path: "linux/mman.h",
        prefixes: &["MAP_"],
        values: &["MAP_HUGE_"],
        rows: &[memory::MAPPINGS],
        least: 3,
    },
    Header {
        path: "linux/sched.h",
        prefixes: &["CLONE_"],
        values: &["CLONE_ARGS_SIZE_"],
        rows: &[clone::ROWS],
        least: 25,
    },
];

/// A macro of a header.
struct Macro {
    /// It is indented (`# define`): in prctl.h a value of an option.
    nested: bool,
    name: String,
    /// Its value, if that is a number.
    number: Option<u32>,
}

/// What a header of the C compiler's defines; `None`: it is not there.
fn macros(header: &str) -> Option<Vec<Macro>> {
    let text = std::fs::read_to_string(Path::new("/usr/include").join(header)).ok()?;
    let one = |line: &str| {
        let directive = line.trim_start().strip_prefix('#')?;
        let words = directive.trim_start().strip_prefix("define")?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = words.split(|c| !is_name(c)).find(|name| !name.is_empty())?;
        let value = words.split_ascii_whitespace().nth(1).unwrap_or_default();
        let number = match value.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        };
        Some(Macro { nested: directive.starts_with(' '), name: name.to_owned(), number })
    };
    Some(text.lines().filter_map(one).collect())
}

impl Header {
    /// Whether a macro is an entry: not a value of one, nor its older and its newer form.
    fn lists(&self, found: &Macro) -> bool {
        let begins = |all: &[&str]| all.iter().any(|start| found.name.starts_with(start));
        let is_form = found.name.ends_with("_OLD") || found.name.ends_with("_NEW");
        let is_option = !found.nested && found.number.is_some();
        begins(self.prefixes)
            && !begins(self.values)
            && !is_form
            && (self.path != PRCTL || is_option)
    }
}

#[test]
fn everything_that_the_headers_define_has_its_row() {
    let mut without = Vec::new();
    for header in HEADERS {
        let Some(all) = macros(header.path) else { continue };
        let entries: BTreeSet<&str> =
            all.iter().filter(|one| header.lists(one)).map(|one| one.name.as_str()).collect();
        assert!(entries.len() >= header.least, "{}: {entries:?}", header.path);
        let known: BTreeSet<&str> =
            header.rows.iter().flat_map(|rows| rows.iter().map(|(name, ..)| *name)).collect();
        let missing = entries.difference(&known);
        without.extend(missing.map(|name| format!("{}: {name}", header.path)));
    }
    assert!(without.is_empty(), "no row: {without:?}");
}

#[test]
fn options_of_prctl_are_in_order() {
    let Some(all) = macros(PRCTL) else { return };
    let number = |name: &str| {
        let one = all.iter().find(|one| !one.nested && one.name == name)?;
        one.number
    };
    let numbers: Vec<u32> = prctl::ROWS.iter().filter_map(|(name, ..)| number(name)).collect();
    assert!(numbers.len() > 40 && numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[test]
fn nothing_comes_twice() {
    for section in SECTIONS {
        let mut seen = BTreeSet::new();
        for (name, ..) in section.rows {
            assert!(seen.insert(*name), "{}: {name}", section.title);
        }
    }
}

#[test]
fn what_is_kept_of_sockets_is_read() {
    use crate::objects::reads_option;
    use crate::sys::abi;
    // Handlers of their own: sizes of buffers, filters, groups; or other names of an option that is read.
    let elsewhere = |name: &str| {
        name.contains("BUF")
            || name.contains("MEMBERSHIP")
            || name.contains("SOURCE")
            || name.contains("MSFILTER")
            || name.starts_with("MCAST_JOIN")
            || ["SO_ATTACH_FILTER", "SO_BINDTOIFINDEX"].contains(&name)
            || ["IPV6_ADDRFORM", "SO_PEERCRED"].contains(&name)
    };
    let mut compared = 0;
    for (header, level, rows) in [
        ("asm-generic/socket.h", libc::SOL_SOCKET, sockets::SOCKET),
        ("linux/in.h", libc::IPPROTO_IP, sockets::IP),
        ("linux/in6.h", libc::IPPROTO_IPV6, sockets::IPV6),
        ("linux/tcp.h", libc::IPPROTO_TCP, sockets::TCP),
        ("linux/udp.h", libc::IPPROTO_UDP, sockets::UDP),
        ("linux/netlink.h", abi::SOL_NETLINK, sockets::NETLINK),
        ("linux/if_packet.h", libc::SOL_PACKET, sockets::PACKET),
    ] {
        let all = macros(header).unwrap_or_default();
        for (name, fate, _) in rows.iter().filter(|(name, ..)| !elsewhere(name)) {
            let found = all.iter().find(|one| one.name == *name);
            let Some(number) = found.and_then(|one| one.number) else { continue };
            // Of raw sockets.
            let level = if *name == "IPV6_CHECKSUM" { SOL_RAW } else { level };
            let read = matches!(fate, Fate::Kept) || *name == "IPV6_ROUTER_ALERT";
            assert_eq!(reads_option(level, number as i32), read, "{name}");
            compared += 1;
        }
    }
    assert!(compared == 0 || compared > 150, "{compared}");
}

/// One entry as the document has it, in lines of its width.
fn item((name, fate, limit): &Row) -> String {
    let name = match name
        .bytes()
        .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"_*".contains(&byte))
    {
        true => format!("`{name}`"),
        false => (*name).to_owned(),
    };
    let text = match *limit {
        "" => format!("- {name}: {}", fate.word()),
        limit => format!("- {name}: {}; {limit}", fate.word()),
    };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        match lines[last].len() {
            0 => lines[last].push_str(word),
            length if length + 1 + word.len() <= COLUMNS => lines[last] += &format!(" {word}"),
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n") + "\n"
}

fn document() -> String {
    let mut text = include_str!("heading.txt").to_owned();
    for section in SECTIONS {
        text += &format!("\n## {}\n\n", section.title);
        section.rows.iter().for_each(|row| text += &item(row));
    }
    text
}

#[test]
fn the_document_says_the_same() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, document()).expect("the document is written");
    }
    let found = std::fs::read_to_string(&path).expect("the document is there");
    assert!(found == document(), "{}: write it with {WRITE}=1", path.display());
}
