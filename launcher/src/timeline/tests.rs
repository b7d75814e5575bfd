use super::*;
use serde_json::Value;
use tracing::{debug, debug_span, trace_span};
use tracing_subscriber::layer::SubscriberExt;

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Phase, name and arguments of all but metadata.
fn told(lines: &[Value]) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told = lines.iter().filter(|line| line["ph"] != "M");
    told.map(|line| (text(&line["ph"]), text(&line["name"]), line["args"].clone())).collect()
}

#[test]
fn spans_and_events_become_lines_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeline.json");
    let timeline = Timeline::create(&path).unwrap();
    let subscriber = tracing_subscriber::registry().with(timeline.layer());
    tracing::subscriber::with_default(subscriber, || {
        let outer = debug_span!("snapshot", pid = 3, bytes = tracing::field::Empty).entered();
        trace_span!("object", kind = "a \"pipe\"\n").in_scope(|| debug!(free = true, "read"));
        outer.record("bytes", 4096_u64);
    });
    drop(timeline);
    let lines = read(&path);
    let told = told(&lines);
    let expected = [
        ("B", "snapshot", serde_json::json!({"pid": 3})),
        ("B", "object", serde_json::json!({"kind": "a \"pipe\"\n"})),
        ("i", "read", serde_json::json!({"free": true})),
        ("E", "object", Value::Null),
        ("E", "snapshot", serde_json::json!({"bytes": 4096})),
        ("i", "end", Value::Null),
    ];
    let expected = expected.map(|(phase, name, args)| (phase.to_owned(), name.to_owned(), args));
    assert_eq!(told, expected);
    let times: Vec<f64> = lines.iter().filter_map(|line| line["ts"].as_f64()).collect();
    assert!(times.len() == lines.len() && times.is_sorted(), "{times:?}");
    let names = lines.iter().filter(|line| line["name"] == "thread_name").count();
    assert_eq!(names, 1, "{lines:?}");
}

#[test]
fn a_file_that_was_cut_off_lacks_its_end_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeline.json");
    let timeline = Timeline::create(&path).unwrap();
    let subscriber = tracing_subscriber::registry().with(timeline.layer());
    tracing::subscriber::with_default(subscriber, || debug_span!("freeze").in_scope(|| {}));
    let lines = || std::fs::read_to_string(&path).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !lines().contains(r#""ph":"E""#) && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let text = lines();
    let whole = text.trim_end().strip_suffix(',').map(|text| format!("{text}]"));
    let read: Vec<Value> = serde_json::from_str(&whole.unwrap_or_default()).unwrap();
    assert_eq!(told(&read).len(), 2, "{text}");
    drop(timeline);
}

#[test]
fn a_file_that_cannot_be_made_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Timeline::create(folder.path()).is_err());
    assert!(Timeline::create(&folder.path().join("none/timeline")).is_err());
}
