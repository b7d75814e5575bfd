//! The lengths of spans in a timeline (`ckptd run --trace`).

use std::collections::HashMap;

use serde_json::Value;

/// How long the outermost spans of this name lasted, each, ms. A timeline that is being written may end within a line.
pub(super) fn lengths(timeline: &str, name: &str) -> Vec<f64> {
    let mut open: HashMap<u64, Vec<(String, f64)>> = HashMap::new();
    let mut lengths = Vec::new();
    for line in timeline.lines() {
        let line = line.trim().trim_end_matches(',');
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let (Some(thread), Some(at)) = (event["tid"].as_u64(), event["ts"].as_f64()) else {
            continue;
        };
        let spans = open.entry(thread).or_default();
        match event["ph"].as_str() {
            Some("B") => {
                spans.push((event["name"].as_str().unwrap_or_default().to_owned(), at));
            }
            Some("E") => {
                let Some((ended, began)) = spans.pop() else { continue };
                if ended == name && !spans.iter().any(|(outer, _)| outer == name) {
                    lengths.push((at - began) / 1e3);
                }
            }
            _ => {}
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_a_name() {
        let event = |phase: &str, thread: u32, at: u32, name: &str| {
            format!("{{\"ph\":\"{phase}\",\"tid\":{thread},\"ts\":{at},\"name\":\"{name}\"}},\n")
        };
        let timeline = "[\n".to_owned()
            + &event("B", 1, 0, "checkpoint")
            + &event("B", 1, 1000, "freeze")
            + &event("B", 2, 2000, "write")
            + &event("E", 1, 3500, "freeze")
            + &event("E", 2, 4000, "write")
            + &event("B", 1, 5000, "freeze")
            + "{\"ph\":\"E\",\"tid\":1,";
        assert_eq!(lengths(&timeline, "freeze"), [2.5]);
        assert_eq!(lengths(&timeline, "write"), [2.0]);
    }
}
