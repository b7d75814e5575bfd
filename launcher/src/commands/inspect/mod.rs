//! `ckptd inspect`.

mod connections;
mod objects;
mod process;
mod tree;

use super::summary::printable;
use super::{Context, print, print_json, target};
use crate::cli::InspectArguments;
use crate::failure::Failure;
use crate::jobs;
use crate::text;
use ckpt_agent::engine::dump::process_file;
use ckpt_agent::engine::graph::{Clocks, Graph, Pid, ProcessImage, ProcessState};
use ckpt_agent::store::Checkpoint;
use protocol::agent::CommitRecord;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a checkpoint says.
struct Content {
    graph: Graph,
    /// Processes that live, by number.
    images: BTreeMap<Pid, ProcessImage>,
}

impl Content {
    fn read(checkpoint: &Checkpoint, what: &str) -> Result<Self, Failure> {
        let failed = |error| Failure::of(what, error);
        let graph: Graph = checkpoint.read_json("graph.json").map_err(failed)?;
        let mut images = BTreeMap::new();
        for node in graph.processes.iter().filter(|node| node.state == ProcessState::Alive) {
            let image = checkpoint.read_json(&process_file(node.pid)).map_err(failed)?;
            images.insert(node.pid, image);
        }
        Ok(Self { graph, images })
    }
}

pub fn perform(context: &Context, arguments: &InspectArguments) -> Result<(), Failure> {
    let (job, only) = target::find(context, &arguments.job)?;
    let what = format!("inspect {}", job.name());
    let number = match only {
        Some(number) => number,
        None => jobs::load(&job)?
            .newest()
            .map(|record| record.checkpoint)
            .ok_or_else(|| Failure::of(&what, "no checkpoint of it was committed"))?,
    };
    let checkpoint =
        Checkpoint::open(job.path(), number).map_err(|error| Failure::of(&what, error))?;
    let content = Content::read(&checkpoint, &what)?;
    for pid in &arguments.process {
        if !content.images.contains_key(pid) {
            return Err(Failure::of(what, format!("there is no living process {pid} in it")));
        }
    }
    let mark = checkpoint.mark();
    if arguments.list.json {
        let mark = serde_json::to_value(mark).map_err(|error| Failure::of(&what, error))?;
        return print_json(&json!({
            "job": job.id(), "checkpoint": number, "mark": mark,
            "graph": content.graph,
            "processes": content.images.values().collect::<Vec<_>>(),
        }));
    }
    let mut out = String::new();
    // Writing to a String never fails.
    let mut line = |label: &str, value: String| {
        let _ = writeln!(out, "{label:<12}{}", printable(&value));
    };
    line("job", format!("{} ({})", job.name(), job.id()));
    line("checkpoint", number.to_string());
    line("command", job.record().command.join(" "));
    if let Ok(record) = serde_json::from_value::<CommitRecord>(mark.meta.clone()) {
        let now = text::now_ms();
        line(
            "taken",
            format!(
                "{} ago, the job stood still for {}",
                text::age(record.taken_at_ms, now),
                text::micros(record.pause_us)
            ),
        );
    }
    let totals = &mark.totals;
    line(
        "size",
        format!(
            "{} in {}, {} stored ({} of it by older checkpoints), {} of index",
            text::size(totals.bytes),
            text::count(totals.submitted, "chunk"),
            text::size(totals.stored),
            text::size(totals.reused),
            text::size(totals.index)
        ),
    );
    line("clocks", clocks(&content.graph.clocks));
    line(
        "machine",
        format!("{}, pages of {} bytes", content.graph.architecture, content.graph.page_size),
    );
    out.push('\n');
    out.push_str(&tree::describe(&content));
    out.push_str(&connections::describe(&content));
    for (pid, image) in &content.images {
        if arguments.verbose || arguments.process.contains(pid) {
            out.push_str(&process::describe(&content, image));
        }
    }
    if !arguments.verbose && arguments.process.is_empty() {
        out.push_str("\n--process PID or --verbose shows threads, mappings and descriptors\n");
    }
    print(&out)
}

fn clocks(clocks: &Clocks) -> String {
    let seconds = |ns: i64| ns as f64 / 1e9;
    format!(
        "monotonic {:.3} s, boot time {:.3} s, {:.3} s since 1970",
        seconds(clocks.monotonic_ns),
        seconds(clocks.boottime_ns),
        seconds(clocks.realtime_ns)
    )
}
