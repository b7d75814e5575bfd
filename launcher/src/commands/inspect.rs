//! `ckptd inspect`.

use super::summary::printable;
use super::{Context, print, print_json, target};
use crate::cli::ListArguments;
use crate::failure::Failure;
use crate::jobs;
use ckpt_agent::store::Checkpoint;
use serde_json::{Map, Value, json};
use std::fmt::Write;

pub fn perform(context: &Context, wanted: &str, list: ListArguments) -> Result<(), Failure> {
    let (job, only) = target::find(context, wanted)?;
    let what = format!("inspect {}", job.name());
    let number = match only {
        Some(number) => number,
        None => jobs::load(&job)?
            .newest()
            .map(|record| record.checkpoint)
            .ok_or_else(|| Failure::of(&what, "no checkpoint of it was committed"))?,
    };
    let failed = |error| Failure::of(&what, error);
    let checkpoint = Checkpoint::open(job.path(), number).map_err(failed)?;
    let mark = checkpoint.mark();
    let mut files = Map::new();
    for file in &mark.files {
        let value: Value = checkpoint.read_json(&file.name).map_err(failed)?;
        files.insert(file.name.clone(), value);
    }
    if list.json {
        let mark = serde_json::to_value(mark).map_err(|error| Failure::of(&what, error))?;
        return print_json(&json!({
            "job": job.id(), "checkpoint": number, "mark": mark, "files": files,
        }));
    }
    let mut text = format!("job {}, checkpoint {number}\n", job.id());
    for (name, value) in &files {
        let _ = writeln!(text, "\n{name}");
        outline(&mut text, value, 1);
    }
    print(&text)
}

/// A value as indented lines; what fits on one stays on one.
fn outline(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                entry(out, &indent, &printable(key), value, depth);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                entry(out, &indent, &format!("[{index}]"), value, depth);
            }
        }
        plain => {
            let _ = writeln!(out, "{indent}{}", printable(&plain.to_string()));
        }
    }
}

fn entry(out: &mut String, indent: &str, key: &str, value: &Value, depth: usize) {
    let line = printable(&value.to_string());
    if !value.is_object() && !value.is_array() || line.len() <= 100 {
        let _ = writeln!(out, "{indent}{key}: {line}");
    } else {
        let _ = writeln!(out, "{indent}{key}:");
        outline(out, value, depth + 1);
    }
}
