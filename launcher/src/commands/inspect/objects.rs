//! Open files in a few words.

use ckpt_engine::graph::{Graph, OpenFile};
use protocol::json::{of_value, to_value};
use serde_json::Value;

/// Kind and identity of an open file: what each kind keeps under its own names.
pub fn describe(graph: &Graph, file: &OpenFile) -> String {
    let kind = file.object.kind();
    let value = to_value(&file.object).unwrap_or_default();
    let mut words = vec![kind.to_owned()];
    let text = |key: &str| leaf(&value, key).and_then(Value::as_str).map(str::to_owned);
    let number = |key: &str| leaf(&value, key).and_then(Value::as_u64);
    words.extend(text("variety"));
    words.extend(text("state").or_else(|| text("link")).or_else(|| text("side")));
    if let Some(inode) = number("inode").and_then(|index| graph.inodes.get(index as usize)) {
        let origin = to_value(&inode.origin).unwrap_or_default();
        let of = |key: &str| origin.get(key).and_then(Value::as_str).map(str::to_owned);
        words.push(of("path").or_else(|| of("name")).unwrap_or_default());
        words.push(format!("({})", of("origin").unwrap_or_default()));
    }
    words.extend(text("path"));
    for (key, label) in [("pipe", "#"), ("fifo", "#"), ("index", "pts/"), ("count", "value ")] {
        words.extend(number(key).map(|number| format!("{label}{number}")));
    }
    if let Some(bytes) = value.pointer("/name/bytes") {
        words.push(name(bytes));
    }
    words.extend(text("local"));
    words.extend(text("peer").map(|peer| format!("-> {peer}")));
    words.extend(text("end").map(|end| format!("({end})")));
    words.extend(number("file").map(|peer| format!("-> file {peer}")));
    if let Some(registrations) = value.get("registrations").and_then(Value::as_array) {
        words.push(format!("watching {}", registrations.len()));
    }
    words.extend(number("offset").map(|offset| format!("offset {offset}")));
    words.extend(number("size").map(|size| format!("size {size}")));
    match in_flight(graph, &value) {
        0 => {}
        bytes => words.push(format!("{bytes} bytes in flight")),
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

/// A scalar under this key, however deep a room keeps it.
pub fn leaf<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    let members = value.as_object()?;
    let own = members.get(key).filter(|member| !member.is_object() && !member.is_array());
    own.or_else(|| {
        let inner = members.iter().filter(|(name, _)| *name != "options");
        inner.map(|(_, member)| member).find_map(|member| leaf(member, key))
    })
}

/// A Unix socket's name; an abstract one is written with @.
fn name(bytes: &Value) -> String {
    let bytes: Vec<u8> = of_value(bytes).unwrap_or_default();
    match bytes.split_first() {
        Some((0, rest)) => format!("@{}", String::from_utf8_lossy(rest)),
        _ => String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned(),
    }
}

/// Bytes that a description holds for its readers: all blobs under these names.
fn in_flight(graph: &Graph, value: &Value) -> u64 {
    let length = |id: &Value| {
        let index = id.as_u64().and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| graph.blobs.get(index)).map_or(0, |blob| blob.length)
    };
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| match (key.as_str(), member) {
                ("received" | "output" | "bytes" | "content", Value::Number(_)) => length(member),
                ("received", Value::Array(items)) if items.iter().all(Value::is_u64) => {
                    items.iter().map(length).sum()
                }
                ("name", _) => 0,
                _ => in_flight(graph, member),
            })
            .sum(),
        Value::Array(items) => items.iter().map(|item| in_flight(graph, item)).sum(),
        _ => 0,
    }
}

/// Access mode and status flags of open(2), as words.
pub fn flags(flags: i32) -> String {
    use nix::fcntl::OFlag;
    let mode = match flags & nix::libc::O_ACCMODE {
        nix::libc::O_WRONLY => "w",
        nix::libc::O_RDWR => "rw",
        _ => "r",
    };
    let named = [
        (OFlag::O_APPEND, "append"),
        (OFlag::O_NONBLOCK, "nonblock"),
        (OFlag::O_ASYNC, "async"),
        (OFlag::O_DIRECT, "direct"),
        (OFlag::O_PATH, "path"),
    ];
    let set = OFlag::from_bits_retain(flags);
    let words = named.iter().filter(|(flag, _)| set.contains(*flag)).map(|(_, word)| *word);
    std::iter::once(mode).chain(words).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckpt_engine::graph::{Blob, Clocks};
    use serde_json::json;

    fn graph() -> Graph {
        Graph {
            version: 1,
            architecture: "x86_64".into(),
            page_size: 4096,
            clocks: Clocks { monotonic_ns: 0, boottime_ns: 0, realtime_ns: 0 },
            vdso: String::new(),
            vdso_image: None,
            layout: Vec::new(),
            offers: Vec::new(),
            root: 2,
            init: 0,
            processes: vec![],
            files: vec![],
            inodes: vec![],
            folders: Vec::new(),
            kept: Default::default(),
            ipc: ckpt_engine::graph::IpcObjects::default(),
            namespaces: Vec::new(),
            sharing: Vec::new(),
            relays: Vec::new(),
            remote_shells: Vec::new(),
            blobs: vec![Blob { length: 5, spans: vec![] }, Blob { length: 7, spans: vec![] }],
        }
    }

    #[test]
    fn bytes_in_flight_are_found_wherever_a_room_keeps_them() {
        let graph = graph();
        assert_eq!(in_flight(&graph, &json!({"received": 1})), 7);
        assert_eq!(in_flight(&graph, &json!({"received": [0, 1]})), 12);
        assert_eq!(in_flight(&graph, &json!({"received": [{"bytes": 0}]})), 5);
        assert_eq!(in_flight(&graph, &json!({"state": "x", "name": {"bytes": [0, 1]}})), 0);
        assert_eq!(in_flight(&graph, &json!({"pair": {"output": 0, "input": [{"bytes": 1}]}})), 12);
        assert_eq!(in_flight(&graph, &json!({"received": 99})), 0);
    }

    #[test]
    fn names_and_flags() {
        assert_eq!(name(&json!([0, 97, 98])), "@ab");
        assert_eq!(name(&json!([47, 97, 0])), "/a");
        assert_eq!(flags(nix::libc::O_RDWR | nix::libc::O_APPEND), "rw,append");
    }
}
