//! Connections within the job as pairs, and those that lead out of it.

use super::{Content, objects};
use crate::tables::printable;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// One line a connection.
pub fn describe(content: &Content) -> String {
    let graph = &content.graph;
    let holders = holders(content);
    let mut out = String::new();
    let mut shown = BTreeSet::new();
    for (index, file) in graph.files.iter().enumerate() {
        let Some(peer) = peer(&protocol::json::to_value(&file.object).unwrap_or_default()) else {
            continue;
        };
        if !shown.insert((index.min(peer), index.max(peer))) {
            continue;
        }
        let side = |index: usize| {
            let held = holders.get(&index).cloned().unwrap_or_else(|| "nobody".to_owned());
            let what = graph.files.get(index).map(|file| objects::describe(graph, file));
            format!("{held}: {}", what.unwrap_or_default())
        };
        let _ = writeln!(out, "  {}  <->  {}", printable(&side(index)), printable(&side(peer)));
    }
    if out.is_empty() { out } else { format!("\nconnections\n{out}") }
}

/// The other end, where it is an open file of the job.
fn peer(object: &Value) -> Option<usize> {
    match object.get("kind")?.as_str()? {
        "tcp_socket" | "unix_socket" => {
            usize::try_from(objects::leaf(object, "file")?.as_u64()?).ok()
        }
        _ => None,
    }
}

/// Who holds which open file: "pid:fd, ...".
fn holders(content: &Content) -> BTreeMap<usize, String> {
    let mut holders: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (pid, image) in &content.images {
        for descriptor in &image.descriptors {
            let place = holders.entry(descriptor.file.0 as usize).or_default();
            place.push(format!("{pid}:{}", descriptor.fd));
        }
    }
    holders.into_iter().map(|(file, all)| (file, all.join(","))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_other_end_is_found_under_every_room_s_name() {
        let unix = json!({"kind": "unix_socket", "link": {"link": "socket", "file": 4}});
        assert_eq!(peer(&unix), Some(4));
        let tcp = json!({"kind": "tcp_socket", "state": {"state": "connected",
            "peer": "127.0.0.1:9", "end": {"end": "socket", "file": 3}}});
        assert_eq!(peer(&tcp), Some(3));
        assert_eq!(peer(&json!({"kind": "pipe", "pipe": 1})), None);
    }
}
