//! Memory policies of single mappings (mbind(2)), as /proc/PID/numa_maps tells them (numa(7)).

use super::super::error::Result;
use super::super::graph::MemoryPolicy;
use super::{Mapping, read_text};

/// MPOL_* by their names (mm/mempolicy.c, policy_modes); a name that begins with another one comes before it.
const MODES: [(&str, u32); 7] = [
    ("default", 0),
    ("prefer (many)", 5),
    ("prefer", 1),
    ("bind", 2),
    ("interleave", 3),
    ("local", 4),
    ("weighted interleave", 6),
];
/// MPOL_F_* by their names (include/uapi/linux/mempolicy.h; mm/mempolicy.c, mpol_to_str).
const FLAGS: [(&str, u32); 3] =
    [("static", 1 << 15), ("relative", 1 << 14), ("balancing", 1 << 13)];

/// Fills in the policies of mappings, which are ascending. Kernels without NUMA tell of none and have none. Walks the page
/// tables as smaps does.
///
/// # Errors
/// Failed reads.
pub fn add_policies(pid: i32, mappings: &mut [Mapping]) -> Result<()> {
    let text = read_text(&format!("/proc/{pid}/numa_maps"))?.unwrap_or_default();
    for line in text.lines() {
        let Some((start, policy)) = parse_line(line) else { continue };
        let Ok(place) = mappings.binary_search_by_key(&start, |mapping| mapping.start) else {
            continue;
        };
        mappings[place].policy = policy;
    }
    Ok(())
}

/// Where a mapping begins, and its policy; the default one is none.
fn parse_line(line: &str) -> Option<(u64, Option<MemoryPolicy>)> {
    let (start, rest) = line.split_once(' ')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let (name, mut mode) = *MODES.iter().find(|(name, _)| rest.starts_with(name))?;
    let rest = rest.get(name.len()..)?.split(' ').next()?;
    let (flags, nodes) = rest.split_once(':').unwrap_or((rest, ""));
    let names = flags.strip_prefix('=').unwrap_or_default().split('|');
    for (_, flag) in names.flat_map(|name| FLAGS.iter().filter(move |(known, _)| *known == name)) {
        mode |= flag;
    }
    let policy = (mode != 0).then(|| MemoryPolicy { mode, nodes: parse_nodes(nodes) });
    Some((start, policy))
}

/// Numbers and ranges (0-1,3).
fn parse_nodes(text: &str) -> Vec<u32> {
    let mut nodes = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            nodes.extend(first..=last.min(MemoryPolicy::MOST_NODES - 1));
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_understood() {
        let policy = |mode, nodes: &[u32]| Some(MemoryPolicy { mode, nodes: nodes.to_vec() });
        for (text, expected) in [
            ("7f00 default file=/usr/bin/head mapped=2 N0=2 kernelpagesize_kB=4", None),
            ("7f00 bind:0-1,3 anon=1", policy(2, &[0, 1, 3])),
            ("7f00 bind=static|balancing:0", policy(2 | 1 << 15 | 1 << 13, &[0])),
            ("7f00 prefer (many):0,2 stack", policy(5, &[0, 2])),
            ("7f00 prefer=relative:1", policy(1 | 1 << 14, &[1])),
            ("7f00 weighted interleave:0-1 heap", policy(6, &[0, 1])),
            ("7f00 local", policy(4, &[])),
        ] {
            assert_eq!(parse_line(text), Some((0x7f00, expected)), "{text}");
        }
        assert_eq!(parse_line("7f00 unheard-of:0"), None);
        assert_eq!(parse_nodes("0-4294967295").len(), MemoryPolicy::MOST_NODES as usize);
    }
}
