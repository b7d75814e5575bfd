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
    Header {
        path: "linux/prctl.h",
        prefixes: &["PR_"],
        values: &[],
        rows: &[prctl::ROWS],
        least: 60,
    },
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

/// What a header defines: names of macros, also of nested ones (`# define`), without those of an older and a newer form.
fn defined(header: &str) -> BTreeSet<&str> {
    let names = header.lines().filter_map(|line| {
        let line = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define")?;
        line.split(|end: char| !end.is_ascii_alphanumeric() && end != '_')
            .find(|name| !name.is_empty())
    });
    names.filter(|name| !name.ends_with("_OLD") && !name.ends_with("_NEW")).collect()
}

#[test]
fn everything_that_the_headers_define_has_its_row() {
    let mut without = Vec::new();
    for header in HEADERS {
        let path = Path::new("/usr/include").join(header.path);
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        // Values of prctl(2)'s options are indented, and its other macros are of other calls.
        let options = header.path == "linux/prctl.h";
        let text: String = match options {
            true => text.lines().filter(|line| line.starts_with("#define")).fold(
                String::new(),
                |all, line| match line.split_ascii_whitespace().nth(2) {
                    Some(number) if number.starts_with(|c: char| c.is_ascii_digit()) => {
                        all + line + "\n"
                    }
                    _ => all,
                },
            ),
            false => text,
        };
        let known: BTreeSet<&str> =
            header.rows.iter().flat_map(|rows| rows.iter().map(|(name, ..)| *name)).collect();
        let entries: Vec<&str> = defined(&text)
            .into_iter()
            .filter(|name| header.prefixes.iter().any(|prefix| name.starts_with(prefix)))
            .filter(|name| !header.values.iter().any(|value| name.starts_with(value)))
            .collect();
        assert!(entries.len() >= header.least, "{}: {entries:?}", path.display());
        let missing = entries.iter().filter(|name| !known.contains(*name));
        without.extend(missing.map(|name| format!("{}: {name}", header.path)));
    }
    assert!(without.is_empty(), "no row: {without:?}");
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

/// The number of a name, as the C compiler's headers have it.
fn number(header: &str, name: &str) -> Option<i32> {
    let text = std::fs::read_to_string(Path::new("/usr/include").join(header)).ok()?;
    text.lines().find_map(|line| {
        let mut words = line.strip_prefix("#define")?.split_ascii_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

#[test]
fn what_is_kept_of_sockets_is_read() {
    use crate::objects::reads_option;
    // Handlers of their own: sizes of buffers, filters, groups; or other names of an option that is read.
    let elsewhere = |name: &str| {
        name.contains("BUF")
            || name.contains("MEMBERSHIP")
            || name.contains("SOURCE")
            || name.contains("MSFILTER")
            || name.starts_with("MCAST_JOIN")
            || ["SO_ATTACH_FILTER", "SO_BINDTOIFINDEX", "IPV6_TRANSPARENT", "IPV6_FREEBIND"]
                .contains(&name)
            || ["IPV6_ADDRFORM", "SO_PEERCRED"].contains(&name)
    };
    let mut compared = 0;
    for (header, level, rows) in [
        ("asm-generic/socket.h", libc::SOL_SOCKET, sockets::SOCKET),
        ("linux/in.h", libc::IPPROTO_IP, sockets::IP),
        ("linux/in6.h", libc::IPPROTO_IPV6, sockets::IPV6),
        ("linux/tcp.h", libc::IPPROTO_TCP, sockets::TCP),
        ("linux/udp.h", libc::IPPROTO_UDP, sockets::UDP),
        ("linux/netlink.h", 270, sockets::NETLINK),
        ("linux/if_packet.h", 263, sockets::PACKET),
    ] {
        for (name, fate, _) in rows.iter().filter(|(name, ..)| !elsewhere(name)) {
            let Some(number) = number(header, name) else { continue };
            // Of raw sockets.
            let level = if *name == "IPV6_CHECKSUM" { 255 } else { level };
            let read = matches!(fate, Fate::Kept) || *name == "IPV6_ROUTER_ALERT";
            assert_eq!(reads_option(level, number), read, "{name}");
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
