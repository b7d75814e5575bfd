//! Files and eventfds that are registered with a ring: which of the job's descriptions they are.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::error::{Refusal, Result};
use super::super::super::graph::FileId;
use super::super::super::names;
use super::super::DumpContext;
use super::Ring;

/// What the kernel calls an eventfd.
const EVENT: &str = "anon_inode:[eventfd]";

/// Finds them among the descriptions of the ring's holders, by name: the kernel tells no more (io_uring/fdinfo.c). A
/// name that several of these have is refused, as is one that none has.
pub(super) fn find(ring: &mut Ring, holders: &[i32], context: &DumpContext) -> Result<()> {
    if ring.names.is_empty() && !ring.has_event && !ring.is_single {
        return Ok(());
    }
    let known = names(holders, context)?;
    let mut files = Vec::with_capacity(ring.names.len());
    for name in &ring.names {
        let file = name.as_ref().map(|name| single(&known, name)).transpose()?;
        files.push(file);
    }
    ring.files = files;
    ring.perhaps = single(&known, EVENT).ok();
    if ring.has_event {
        ring.event = Some(single(&known, EVENT)?);
    }
    Ok(())
}

type Names = BTreeMap<String, BTreeSet<FileId>>;

fn single(known: &Names, name: &str) -> Result<FileId> {
    let refuse = |why: &str| {
        Refusal::new(
            format!("an io_uring with {name} registered, {why}"),
            "unregister it while checkpoints are taken",
        )
    };
    let none = || refuse("which its holders don't have open, or can't be given first");
    let found = known.get(name).ok_or_else(none)?;
    match (found.len(), found.first()) {
        (1, Some(file)) => Ok(*file),
        _ => Err(refuse("of which its holders have several open").into()),
    }
}

/// What these processes have open, as fdinfo would name it, but for what is made when there are processes, after the
/// ring.
fn names(holders: &[i32], context: &DumpContext) -> Result<Names> {
    let mut names = Names::new();
    for pid in holders {
        for ((_, fd), file) in context.descriptors.range((*pid, 0)..=(*pid, i32::MAX)) {
            let path = format!("/proc/{pid}/fd/{fd}");
            // One that is gone is none that is looked for.
            let Ok(link) = std::fs::read_link(&path) else { continue };
            for name in told(&names::text(link)).into_iter().flatten() {
                names.entry(name).or_default().insert(*file);
            }
        }
    }
    Ok(names)
}

/// What fdinfo may call a file: its path, or, in older kernels, only the last part of that.
pub(super) fn told(link: &str) -> Option<[String; 2]> {
    let is_late = link.starts_with("/proc/")
        || link.starts_with("pidfd:")
        || ["[io_uring]", "[pidfd]", "[userfaultfd]"].iter().any(|kind| link.ends_with(kind));
    let path = link.strip_suffix(" (deleted)").unwrap_or(link);
    let last = path.rsplit(['/', ':']).next().unwrap_or(path);
    (!is_late).then(|| [escaped(link), last.to_owned()])
}

/// As the kernel writes a path: these characters in octal (fs/seq_file.c, seq_file_path()).
pub(super) fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for letter in path.chars() {
        match letter {
            ' ' | '\t' | '\n' | '\\' => out.push_str(&format!("\\{:03o}", letter as u32)),
            other => out.push(other),
        }
    }
    out
}
