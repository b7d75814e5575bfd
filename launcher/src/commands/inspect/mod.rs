//! `ckptd inspect`.

mod connections;
mod objects;
mod process;
mod tree;

use super::images::{ClusterJob, Image, Place};
use super::target::Target;
use super::{Context, print, print_json, target};
use crate::cli::InspectArguments;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::jobs;
use crate::tables::printable;
use crate::text;
use ckpt_agent::look;
use ckpt_engine::graph::{Clocks, Graph, Pid, ProcessImage};
use ckpt_store::{CommitMark, Damage};
use protocol::agent::CommitRecord;
use protocol::cluster::look::{Finding, Look};
use protocol::json;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// What a checkpoint says.
struct Content {
    mark: CommitMark,
    graph: Graph,
    /// Processes that live, by number.
    images: BTreeMap<Pid, ProcessImage>,
}

/// Which checkpoint, for its heading.
struct Of<'a> {
    name: &'a str,
    id: &'a str,
    command: &'a str,
    number: u64,
    /// Of a cluster's job: whose part of it.
    instance: Option<u64>,
}

impl From<look::Content> for Content {
    fn from(content: look::Content) -> Self {
        let look::Content { mark, graph, processes } = content;
        let images = processes.into_iter().map(|process| (process.pid, process)).collect();
        Self { mark, graph, images }
    }
}

impl Content {
    fn read(job_dir: &Path, number: u64, what: &str) -> Result<Self, Failure> {
        let content = look::Content::read(job_dir, number);
        content.map(Self::from).map_err(|error| Failure::of(what, error))
    }

    /// The same, of what may be encrypted with a key that the coordinator tells the agent alone; then None.
    fn read_open(job_dir: &Path, number: u64, what: &str) -> Result<Option<Self>, Failure> {
        match look::Content::read(job_dir, number) {
            Ok(content) => Ok(Some(content.into())),
            Err(Damage::NoKey { .. }) => Ok(None),
            Err(error) => Err(Failure::of(what, error)),
        }
    }

    /// Of what the agent has found.
    fn told(finding: Finding, what: &str) -> Result<Option<Self>, Failure> {
        match finding {
            Finding::Content { value } => json::of_value::<look::Content>(&value)
                .map(|content| Some(content.into()))
                .map_err(|error| Failure::of(what, error)),
            Finding::Unread { reason } | Finding::Damaged { reason } => {
                Err(Failure::of(what, reason))
            }
            Finding::Missing | Finding::Unfinished | Finding::Whole { .. } => Ok(None),
        }
    }

    fn json(&self, what: &str) -> Result<serde_json::Value, Failure> {
        let mark = json::to_value(&self.mark).map_err(|error| Failure::of(what, error))?;
        let graph = json::to_value(&self.graph).map_err(|error| Failure::of(what, error))?;
        let processes = self.images.values().collect::<Vec<_>>();
        let processes = json::to_value(&processes).map_err(|error| Failure::of(what, error))?;
        Ok(json!({
            "mark": mark,
            "graph": graph,
            "processes": processes,
        }))
    }
}

pub fn perform(context: &Context, arguments: &InspectArguments) -> Result<(), Failure> {
    let (name, only) = target::split(&arguments.job)?;
    let job = match context.target(name)? {
        Target::Cluster(cluster) => return of_cluster(context, &cluster, name, only, arguments),
        Target::Own(job) => job,
    };
    let what = format!("inspect {}", job.name());
    let number = match only {
        Some(number) => number,
        None => jobs::load(&job)?
            .newest()
            .map(|record| record.checkpoint)
            .ok_or_else(|| Failure::of(&what, "no checkpoint of it was committed"))?,
    };
    let opened = Content::read(job.path(), number, &what)?;
    find_processes(std::slice::from_ref(&opened), arguments, &what)?;
    if arguments.list.json {
        let mut value = opened.json(&what)?;
        value["job"] = job.id().into();
        value["checkpoint"] = number.into();
        return print_json(&value);
    }
    let command = job.record().command.join(" ");
    let of = Of { name: job.name(), id: job.id(), command: &command, number, instance: None };
    print(&(describe(&of, &opened, arguments) + hint(arguments)))
}

/// Of a checkpoint of a cluster's job, the parts that can be read on this machine; of the others it says where they are.
fn of_cluster(
    context: &Context,
    cluster: &Cluster,
    name: &str,
    only: Option<u64>,
    arguments: &InspectArguments,
) -> Result<(), Failure> {
    let what = format!("inspect {name}");
    let job = ClusterJob::find(context, cluster, name, &what)?;
    let newest = || job.images.iter().rev().find(|image| image.is_current).map(|i| i.checkpoint);
    let number = only
        .or_else(newest)
        .ok_or_else(|| Failure::of(&what, "no checkpoint of it was committed"))?;
    let images: Vec<&Image> =
        job.images.iter().filter(|image| image.checkpoint == number).collect();
    if images.is_empty() {
        return Err(Failure::of(what, format!("there is no checkpoint {number}")));
    }
    let mut read = BTreeMap::new();
    for image in &images {
        if let Place::Here(folder) = &image.place {
            read.insert(image.instance, Content::read_open(folder, number, &what)?);
        }
    }
    let mut told = match read.values().any(Option::is_none) {
        true => job.ask_agent(cluster, Some(number), Look::Inspect, &what)?,
        false => job.ask(cluster, &images, Some(number), Look::Inspect, &what)?,
    };
    let (mut here, mut left, mut opened) = (Vec::new(), Vec::new(), Vec::new());
    for image in &images {
        let found = match read.remove(&image.instance).flatten() {
            Some(content) => Some(content),
            None => match told.remove(&image.key()) {
                Some(finding) => Content::told(finding, &what)?,
                None => None,
            },
        };
        match found {
            Some(content) => {
                opened.push(content);
                here.push(image.instance);
            }
            None => left.push(*image),
        }
    }
    if here.is_empty() {
        let command = format!("inspect {name}@{number}");
        return Err(Failure::of(what, ClusterJob::nothing_here(&command, &images)));
    }
    find_processes(&opened, arguments, &what)?;
    if arguments.list.json {
        let mut parts = Vec::new();
        for (instance, opened) in here.iter().zip(&opened) {
            let mut value = opened.json(&what)?;
            value["instance"] = (*instance).into();
            parts.push(value);
        }
        let elsewhere = left
            .iter()
            .map(|image| json!({ "instance": image.instance, "holders": image.holders }));
        return print_json(&json!({
            "job": job.id, "checkpoint": number,
            "instances": parts, "elsewhere": elsewhere.collect::<Vec<_>>(),
        }));
    }
    let mut out = String::new();
    for (instance, opened) in here.iter().zip(&opened) {
        let instance = Some(*instance);
        let of = Of { name: &job.name, id: &job.id, command: &job.command, number, instance };
        out += &describe(&of, opened, arguments);
        out.push('\n');
    }
    for image in left {
        out += &format!("instance {} is on {}\n", image.instance, image.holders.join(", "));
    }
    print(&(out + hint(arguments)))
}

fn find_processes(
    opened: &[Content],
    arguments: &InspectArguments,
    what: &str,
) -> Result<(), Failure> {
    for pid in &arguments.process {
        if !opened.iter().any(|opened| opened.images.contains_key(pid)) {
            return Err(Failure::of(what, format!("there is no living process {pid} in it")));
        }
    }
    Ok(())
}

fn hint(arguments: &InspectArguments) -> &'static str {
    match arguments.verbose || !arguments.process.is_empty() {
        true => "",
        false => "\n--process PID or --verbose shows threads, mappings and descriptors\n",
    }
}

fn describe(of: &Of<'_>, content: &Content, arguments: &InspectArguments) -> String {
    let mark = &content.mark;
    let mut out = String::new();
    // Writing to a String never fails.
    let mut line = |label: &str, value: String| {
        let _ = writeln!(out, "{label:<12}{}", printable(&value));
    };
    line("job", format!("{} ({})", of.name, of.id));
    line("checkpoint", of.number.to_string());
    if let Some(instance) = of.instance {
        line("instance", instance.to_string());
    }
    line("command", of.command.to_owned());
    if let Ok(record) = json::of_value::<CommitRecord>(&mark.meta) {
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
    out.push_str(&tree::describe(content));
    out.push_str(&connections::describe(content));
    for (pid, image) in &content.images {
        if arguments.verbose || arguments.process.contains(pid) {
            out.push_str(&process::describe(content, image));
        }
    }
    out
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
