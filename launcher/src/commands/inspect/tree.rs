//! The process tree as a table.

use super::Content;
use crate::tables::{printable, table};
use crate::text;
use ckpt_engine::graph::{Pid, ProcessImage, ProcessNode, ProcessState};

/// One line a process, children below their parents.
pub fn describe(content: &Content) -> String {
    let heading =
        ["PID", "PPID", "PGID", "SID", "THREADS", "STORED", "AREAS", "FDS", "STATE", "NAME"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let nodes = &content.graph.processes;
    let is_root = |node: &&ProcessNode| !nodes.iter().any(|other| other.pid == node.ppid);
    // A tree that claims to be a circle has no root: its processes are listed after the others.
    let mut shown = Vec::new();
    let mut waiting: Vec<(usize, &ProcessNode)> =
        nodes.iter().filter(is_root).map(|node| (0, node)).collect();
    waiting.reverse();
    while let Some((depth, node)) = waiting.pop() {
        if shown.contains(&node.pid) {
            continue;
        }
        shown.push(node.pid);
        rows.push(row(content, node, depth));
        let children = nodes.iter().filter(|child| child.ppid == node.pid);
        waiting.extend(children.rev().map(|child| (depth + 1, child)));
    }
    let left: Vec<&ProcessNode> = nodes.iter().filter(|node| !shown.contains(&node.pid)).collect();
    rows.extend(left.into_iter().map(|node| row(content, node, 0)));
    table(&rows)
}

fn row(content: &Content, node: &ProcessNode, depth: usize) -> Vec<String> {
    let image = content.images.get(&node.pid);
    let number = |of: fn(&ProcessImage) -> usize| {
        image.map_or_else(|| "-".to_owned(), |image| of(image).to_string())
    };
    let stored = image.map_or_else(
        || "-".to_owned(),
        |image| text::size(stored_pages(image) * content.graph.page_size),
    );
    let pids: [Pid; 4] = [node.pid, node.ppid, node.pgid, node.sid];
    let mut cells: Vec<String> = pids.iter().map(ToString::to_string).collect();
    cells.extend([
        number(|image| image.threads.len()),
        stored,
        number(|image| image.areas.len()),
        number(|image| image.descriptors.len()),
        state(node, image),
        format!("{}{}", "  ".repeat(depth), printable(&node.comm)),
    ]);
    cells
}

fn state(node: &ProcessNode, image: Option<&ProcessImage>) -> String {
    match (node.state, image.and_then(|image| image.stopped_by)) {
        (ProcessState::Zombie { status, .. }, _) => format!("zombie ({status:#x})"),
        (ProcessState::StandIn, _) => "elsewhere".to_owned(),
        (ProcessState::Alive, Some(signal)) => format!("stopped ({signal})"),
        (ProcessState::Alive, None) => "alive".to_owned(),
    }
}

/// Pages of a process that are in the image.
pub fn stored_pages(image: &ProcessImage) -> u64 {
    image.pages.iter().map(|window| u64::from(window.pages.count_ones())).sum()
}
