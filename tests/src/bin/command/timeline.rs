//! `--trace`: the timeline of checkpoints and of a restore; and what is said of a step that does not end.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ckptd_tests::job::Failure;
use serde_json::Value;

use super::stage::{JOB, Running, Stage, expect, fail, own, until};

/// Two processes, one with threads to tell apart from others, connected by a pipe.
const PAIR: &str = "echo ready; while [ ! -e go ]; do sleep 0.02; done | cat; echo right";

/// A span that has ended, by the lines of its beginning and end.
#[derive(Debug)]
struct Span {
    name: String,
    thread: i64,
    /// In microseconds.
    from: f64,
    to: f64,
    /// How many spans of the thread it is within.
    depth: usize,
    arguments: Value,
}

impl Span {
    fn is_within(&self, outer: &Span) -> bool {
        outer.from <= self.from && self.to <= outer.to
    }
}

fn read(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = own(fs::read_to_string(path))?;
    serde_json::from_str(&text).map_err(|error| Failure(format!("no JSON: {error}: {text}")))
}

/// All spans; times must not go back, and what begins on a thread must end there, the last first.
fn spans(lines: &[Value]) -> Result<Vec<Span>, Failure> {
    let mut open: BTreeMap<i64, Vec<Span>> = BTreeMap::new();
    let (mut spans, mut last) = (Vec::new(), 0.0);
    for line in lines {
        let (name, time) = (line["name"].as_str(), line["ts"].as_f64());
        let (Some(name), Some(time), Some(thread)) = (name, time, line["tid"].as_i64()) else {
            return fail(format!("incomplete: {line}"));
        };
        expect(line["pid"].is_u64() && time >= last, || format!("{line} after {last}"))?;
        last = time;
        let of_thread = open.entry(thread).or_default();
        match line["ph"].as_str() {
            Some("B") => of_thread.push(Span {
                name: name.to_owned(),
                thread,
                from: time,
                to: f64::INFINITY,
                depth: of_thread.len(),
                arguments: line["args"].clone(),
            }),
            Some("E") => match of_thread.pop() {
                Some(mut span) if span.name == name => {
                    span.to = time;
                    if let (Value::Object(all), Value::Object(later)) =
                        (&mut span.arguments, &line["args"])
                    {
                        all.extend(later.clone());
                    }
                    spans.push(span);
                }
                other => return fail(format!("{line} ends {other:?}")),
            },
            Some("i" | "M") => {}
            _ => return fail(format!("unknown: {line}")),
        }
    }
    Ok(spans)
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// The only span of that name within another.
fn only<'a>(spans: &'a [Span], name: &str, outer: &Span) -> Result<&'a Span, Failure> {
    match named(spans, name).into_iter().filter(|span| span.is_within(outer)).collect::<Vec<_>>()[..]
    {
        [span] => Ok(span),
        ref found => fail(format!("{name} within {outer:?}: {found:?}")),
    }
}

/// The name of the thread, as the timeline has it.
fn thread<'a>(lines: &'a [Value], span: &Span) -> Option<&'a str> {
    let named = |line: &&Value| line["name"] == "thread_name" && line["tid"] == span.thread;
    lines.iter().find(named)?["args"]["name"].as_str()
}

/// A checkpoint's stages lie within it, one after the other, with what was done to processes and objects.
fn check_checkpoint(lines: &[Value], spans: &[Span], checkpoint: &Span) -> Result<(), Failure> {
    let mut end = checkpoint.from;
    for stage in ["freeze", "quiesce", "snapshot", "resume", "write", "commit"] {
        let span = only(spans, stage, checkpoint)?;
        expect(span.from >= end, || format!("{span:?} begins before {end}"))?;
        end = span.to;
    }
    for stage in ["freeze", "snapshot", "commit"] {
        let span = only(spans, stage, checkpoint)?;
        expect(thread(lines, span) == Some("engine") && span.depth == 1, || format!("{span:?}"))?;
    }
    let write = only(spans, "write", checkpoint)?;
    expect(thread(lines, write) == Some("writer"), || format!("{write:?}"))?;
    for part in ["pack", "index", "seal"] {
        only(spans, part, write)?;
    }
    only(spans, "read ahead", only(spans, "freeze", checkpoint)?)?;
    let within = |name, outer: &str| -> Result<Vec<&Span>, Failure> {
        let outer = only(spans, outer, checkpoint)?;
        Ok(named(spans, name).into_iter().filter(|span| span.is_within(outer)).collect())
    };
    for stage in ["snapshot", "write"] {
        let processes = within("process", stage)?;
        let pids: Vec<&Value> = processes.iter().map(|span| &span.arguments["pid"]).collect();
        expect(pids.len() >= 2 && pids.iter().all(|pid| pid.is_i64()), || {
            format!("processes of {stage}: {pids:?}")
        })?;
    }
    let bytes = within("process", "write")?;
    let bytes = bytes.iter().filter_map(|span| span.arguments["bytes"].as_u64()).min();
    expect(bytes > Some(0), || format!("bytes: {bytes:?}"))?;
    let objects = within("object", "quiesce")?;
    let pipes = objects.iter().filter(|span| span.arguments["kind"] == "pipe").count();
    let ids = objects.iter().all(|span| span.arguments["id"].is_u64());
    expect(pipes >= 2 && ids, || format!("objects: {objects:?}"))
}

/// The options that make a timeline, and the file.
fn options(path: &Path) -> Vec<String> {
    let path = path.display().to_string();
    ["--interval", "0", "--trace", &path].map(str::to_owned).to_vec()
}

/// A job that is checkpointed twice, ends with ckptd, and is restored.
pub fn of_a_job(stage: &Stage) -> Result<(), Failure> {
    let file = stage.home.join("timeline.json");
    let options_of_run = options(&file);
    let mut arguments = vec!["run", "--name", JOB];
    arguments.extend(options_of_run.iter().map(String::as_str));
    arguments.extend(["--", "sh", "-c", PAIR]);
    let mut running = stage.start(&arguments)?;
    stage.until_up(&mut running)?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    let second = stage.checkpoint()?;
    // What is there of a timeline is whole lines.
    until("the second checkpoint in the file", || {
        fs::read_to_string(&file).is_ok_and(|text| {
            text.lines()
                .filter(|line| line.contains(r#""ph":"E""#) && line.contains(r#""commit""#))
                .count()
                == 2
        })
    })?;
    stage.output(&["stop", JOB], "")?.expect(0)?;
    running.finish()?;
    let lines = read(&file)?;
    let all = spans(&lines)?;
    let launch = named(&all, "launch");
    expect(launch.len() == 1, || format!("{launch:?}"))?;
    only(&all, "program", launch[0])?;
    let checkpoints = named(&all, "checkpoint");
    expect(checkpoints.len() == 2 && second == 2, || format!("{checkpoints:?}"))?;
    for checkpoint in checkpoints {
        check_checkpoint(&lines, &all, checkpoint)?;
    }
    restored(stage)
}

fn restored(stage: &Stage) -> Result<(), Failure> {
    let file = stage.home.join("restore.json");
    own(fs::write(stage.home.join("go"), ""))?;
    let options = options(&file);
    let mut arguments = vec!["restart", JOB];
    arguments.extend(options.iter().map(String::as_str));
    let ended = stage.output(&arguments, "")?.expect(0)?;
    expect(ended.out.contains("right"), || format!("{ended:?}"))?;
    let lines = read(&file)?;
    let all = spans(&lines)?;
    let restore = named(&all, "restore");
    expect(restore.len() == 1 && restore[0].arguments["checkpoint"] == 2, || {
        format!("{restore:?}")
    })?;
    let mut end = 0.0;
    for part in ["namespaces", "image", "tree", "processes", "memory", "threads", "go"] {
        // Without namespaces, or without a thread, a stage is short, and still there.
        let span = only(&all, part, restore[0])?;
        expect(span.from >= end, || format!("{span:?} begins before {end}"))?;
        end = span.to;
    }
    let bytes = only(&all, "memory", restore[0])?.arguments["bytes"].as_u64();
    expect(bytes > Some(0), || format!("bytes: {bytes:?}"))?;
    let layouts = named(&all, "layout").len();
    let pipes = named(&all, "objects").into_iter().any(|span| span.arguments["kind"] == "pipe");
    expect(layouts >= 2 && pipes, || format!("{layouts} processes; pipes: {pipes}"))
}

/// A file that can't be made is told, and leaves no job behind.
pub fn refused(stage: &Stage) -> Result<(), Failure> {
    let path = stage.home.join("none/timeline.json");
    let options = options(&path);
    let mut arguments = vec!["run"];
    arguments.extend(options.iter().map(String::as_str));
    arguments.push("true");
    let ended = stage.output(&arguments, "")?.expect(125)?;
    let right = ended.err.starts_with("ckptd: failed to run true: write the timeline ")
        && ended.err.contains("none/timeline.json: No such file")
        && ended.err.lines().count() == 1;
    expect(right, || format!("{ended:?}"))?;
    let jobs = stage.json(&["ls"])?;
    expect(jobs.as_array().is_some_and(Vec::is_empty), || format!("{jobs}"))
}

/// A step that does not end is given up, and the reason says what it had begun last. The job goes on.
pub fn stuck(stage: &Stage) -> Result<(), Failure> {
    let faults = stage.outside.path();
    own(fs::write(faults.join("quiesce"), "")
        .and_then(|()| stage.account.give(&faults.join("quiesce"))))?;
    let mut command =
        stage.command(&["run", "--interval", "0", "--name", JOB, "--", "sh", "-c", PAIR]);
    command.env("CKPTD_FAULT_DIR", faults);
    let mut running = Running::start(command)?;
    stage.until_up(&mut running)?;
    running.wait_for("ready")?;
    let failed = stage.output(&["checkpoint", JOB], "")?.expect(125)?;
    // Whether the agent had reported anything of the step before depends on when it began to count.
    let right = ["no answer in", "no progress for"].iter().any(|what| {
        let wanted = format!("quiesce: {what} 10 s from the agent (last: bringing to rest ");
        failed.err.contains(&wanted)
    });
    expect(right && failed.err.lines().count() == 1, || format!("{failed:?}"))?;
    own(fs::remove_file(faults.join("quiesce.reached")))?;
    stage.checkpoint()?;
    own(fs::write(stage.home.join("go"), ""))?;
    let ended = running.finish()?.expect(0)?;
    expect(ended.out.contains("right"), || format!("{ended:?}"))
}
