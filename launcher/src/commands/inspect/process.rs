//! One process: its threads, mappings and descriptors.

use super::{Content, objects};
use crate::tables::{printable, table};
use crate::text;
use ckpt_engine::arch::{Architecture, Current};
use ckpt_engine::graph::{Area, Backing, Graph, ProcessImage, Protection, ThreadImage, from_hex};
use std::fmt::Write;

/// All that is said of a process.
pub fn describe(content: &Content, image: &ProcessImage) -> String {
    let mut out = format!("\nprocess {}  {}\n", image.pid, printable(&image.executable.path));
    // Writing to a String never fails.
    let _ = writeln!(
        out,
        "  in {}, umask {:03o}, nice {}",
        printable(&image.working_directory),
        image.umask,
        image.nice
    );
    let mut rows = vec![words(&["THREAD", "NAME", "AT", "BLOCKED", "PENDING"])];
    rows.extend(image.threads.iter().map(|saved| thread(content, image, saved)));
    append(&mut out, "threads", &rows);

    let mut rows = vec![words(&["ADDRESS", "SIZE", "MODE", "STORED", "BACKING"])];
    rows.extend(image.areas.iter().map(|area| mapping(&content.graph, image, area)));
    append(&mut out, "mappings", &rows);

    let mut rows = vec![words(&["FD", "FILE", "FLAGS", "OBJECT"])];
    for descriptor in &image.descriptors {
        let file = content.graph.files.get(descriptor.file.0 as usize);
        let mut flags = file.map_or_else(String::new, |file| objects::flags(file.flags));
        if descriptor.close_on_exec {
            flags.push_str(",cloexec");
        }
        let what = file.map(|file| objects::describe(&content.graph, file));
        let what = printable(&what.unwrap_or_else(|| "damaged".to_owned()));
        rows.push(vec![descriptor.fd.to_string(), descriptor.file.0.to_string(), flags, what]);
    }
    append(&mut out, "descriptors", &rows);
    out
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn append(out: &mut String, title: &str, rows: &[Vec<String>]) {
    if rows.len() < 2 {
        return;
    }
    let _ = writeln!(out, "  {title}");
    for line in table(rows).lines() {
        let _ = writeln!(out, "    {line}");
    }
}

fn thread(content: &Content, image: &ProcessImage, saved: &ThreadImage) -> Vec<String> {
    vec![
        saved.tid.to_string(),
        printable(&saved.comm),
        place(content, image, saved).unwrap_or_else(|| "-".to_owned()),
        format!("{:x}", saved.blocked),
        saved.pending.len().to_string(),
    ]
}

/// Where a thread stands: mapping and offset in its file, as a debugger would name it.
fn place(content: &Content, image: &ProcessImage, saved: &ThreadImage) -> Option<String> {
    if content.graph.architecture != Current::NAME {
        return None;
    }
    let registers = Current::from_bytes(&from_hex(&saved.registers).ok()?)?;
    let at = Current::program_counter(&registers);
    let area = image.areas.iter().find(|area| area.start <= at && at < area.end)?;
    let distance = at - area.start;
    Some(match &area.backing {
        Backing::File { file, offset, .. } => {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            format!("{}+{:#x}", printable(name), offset.saturating_add(distance))
        }
        Backing::Kernel { name } => format!("{}+{distance:#x}", printable(name)),
        _ => format!("{at:#x}"),
    })
}

fn mapping(graph: &Graph, image: &ProcessImage, area: &Area) -> Vec<String> {
    let bit = |bit: u8, letter: char| if area.protection.0 & bit != 0 { letter } else { '-' };
    let mode: String = [
        bit(Protection::READ, 'r'),
        bit(Protection::WRITE, 'w'),
        bit(Protection::EXEC, 'x'),
        if area.shared { 's' } else { 'p' },
    ]
    .iter()
    .collect();
    let stored = stored_bytes(image, area, graph.page_size);
    let backing = match &area.backing {
        Backing::Anonymous => "anonymous".to_owned(),
        Backing::File { file, offset, .. } => format!("{} at {offset:#x}", file.path),
        Backing::Carried { inode, offset, .. } => {
            let origin = graph.inodes.get(inode.0 as usize).map(|inode| &inode.origin);
            format!("in the image: {origin:?} at {offset:#x}")
        }
        Backing::Ring { file, offset } => format!("ring {} at {offset:#x}", file.0),
        Backing::Aio { head, tail, .. } => {
            format!("asynchronous input and output, events {head} to {tail}")
        }
        Backing::Kernel { name } => name.clone(),
    };
    let guards = match area.advice.guards.len() {
        0 => String::new(),
        count => format!(", {}", text::count(count as u64, "guard region")),
    };
    vec![
        format!("{:x}-{:x}", area.start, area.end),
        text::size(area.end - area.start),
        mode,
        if stored == 0 { "-".to_owned() } else { text::size(stored) },
        printable(&backing) + &guards,
    ]
}

/// Bytes of stored pages that lie in an area.
fn stored_bytes(image: &ProcessImage, area: &Area, page: u64) -> u64 {
    let inside = |(start, length): (u64, u64)| {
        (start + length).min(area.end).saturating_sub(start.max(area.start))
    };
    image
        .pages
        .iter()
        .filter(|window| {
            window.address < area.end && area.start < window.address.saturating_add(64 * page)
        })
        .flat_map(|window| window.runs(page))
        .map(inside)
        .sum()
}
