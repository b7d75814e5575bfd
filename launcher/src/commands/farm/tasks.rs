//! `ckptd farm status` of a farm whose tasks are submitted one by one.

use super::names::Names;
use super::{print, print_json};
use crate::cli::ListArguments;
use crate::failure::Failure;
use crate::farm::{self, Ends, FarmError, FarmFolder, Reply, Request, RunningTask};
use crate::tables::{printable, table};
use crate::text;
use ckptd_farm::Task;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most tasks that are shown as waiting; the line below tells how many there are.
const MOST_SHOWN: usize = 1000;

/// A farm; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    /// The folder with the results.
    results: String,
    state: &'static str,
    /// How many run at a time, while it runs.
    jobs: Option<u64>,
    tasks: Vec<One>,
    queued: usize,
    running: usize,
    right: usize,
    failed: usize,
}

/// A task; the keys stay as they are.
#[derive(Debug, Serialize)]
struct One {
    task: u32,
    state: &'static str,
    command: String,
    attempt: Option<u32>,
    pid: Option<i32>,
    seconds: Option<f64>,
    restored: Option<bool>,
    outcome: Option<&'static str>,
    status: Option<u8>,
    ended_at_ms: Option<u64>,
}

/// What is known of a farm.
struct Known {
    folder: FarmFolder,
    ends: Ends,
    running: BTreeMap<u32, RunningTask>,
    stuck: BTreeSet<u32>,
    jobs: Option<u64>,
    is_running: bool,
    names: Names,
}

impl Known {
    fn of(folder: &FarmFolder) -> Result<Self, FarmError> {
        let names = Names::of(folder)?;
        let mut known = Self {
            folder: folder.clone(),
            ends: Ends::of(folder),
            running: BTreeMap::new(),
            stuck: BTreeSet::new(),
            jobs: None,
            is_running: folder.is_running(),
            names,
        };
        let reply = farm::ask(folder, Request::Status {}).unwrap_or_else(|error| {
            // What was recorded is known without it.
            farm::say(&format!("warning: failed to {error}"));
            None
        });
        if let Some(Reply::Status { running, stuck, jobs }) = reply {
            known.running = running.into_iter().map(|running| (running.task, running)).collect();
            known.stuck = stuck.into_iter().collect();
            known.jobs = Some(jobs);
        }
        // Later: what ends meanwhile has ended.
        known.ends.read()?;
        Ok(known)
    }

    fn one(&self, task: u32) -> One {
        let mut one = One {
            task,
            state: "queued",
            command: printable(&self.names.task(Task(task))),
            attempt: None,
            pid: None,
            seconds: None,
            restored: None,
            outcome: None,
            status: None,
            ended_at_ms: None,
        };
        if let Some(end) = self.ends.end(Task(task)) {
            let tried = &end.tried;
            one.state = "ended";
            one.attempt = Some(tried.attempt);
            one.seconds = Some(tried.took_ms as f64 / 1000.0);
            one.restored = Some(tried.restored);
            one.outcome = Some(farm::outcome(tried.verdict));
            one.status = Some(farm::status(tried.verdict));
            one.ended_at_ms = Some(end.at_ms);
        } else if let Some(running) = self.running.get(&task) {
            one.state = "running";
            one.attempt = Some(running.attempt);
            one.pid = Some(running.pid);
            one.seconds = Some(running.seconds);
            one.restored = Some(running.restored);
        } else if self.stuck.contains(&task) {
            one.state = "stuck";
        }
        one
    }
}

impl One {
    fn row(&self) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            self.task.to_string(),
            match self.outcome {
                Some(outcome) if outcome != "exited" => outcome.to_owned(),
                _ => self.state.to_owned(),
            },
            or_dash(self.status.map(|status| status.to_string())),
            or_dash(self.seconds.map(|seconds| text::micros((seconds * 1e6) as u64))),
            self.command.clone(),
        ]
    }
}

const HEADING: [&str; 5] = ["TASK", "STATE", "STATUS", "TIME", "COMMAND"];

/// Shows one task.
pub fn one(folder: &FarmFolder, task: Task, list: &ListArguments) -> Result<(), Failure> {
    if !(1..=folder.record().tasks).contains(&task.0) {
        return Err(FarmError::NoTask { name: folder.name().to_owned(), task: task.0 }.into());
    }
    let one = Known::of(folder)?.one(task.0);
    if list.json {
        return print_json(&one);
    }
    print(&table(&[HEADING.map(str::to_owned).to_vec(), one.row()]))
}

/// Shows what runs and what waits, and tells how many have ended.
pub fn all(folder: &FarmFolder, list: &ListArguments) -> Result<(), Failure> {
    let known = Known::of(folder)?;
    let (right, failed) = known.ends.counts();
    let total = folder.record().tasks;
    let is_left = |task: &u32| known.ends.end(Task(*task)).is_none();
    let running = known.running.keys().filter(|task| is_left(task)).count();
    let left = (1..=total).filter(is_left).count();
    let state = match (known.is_running, left) {
        (true, _) => "running",
        (false, 0) => "ended",
        (false, _) => "interrupted",
    };
    if list.json {
        return print_json(&Shown {
            name: known.folder.name().to_owned(),
            results: known.folder.results().display().to_string(),
            state,
            jobs: known.jobs,
            tasks: (1..=total).map(|task| known.one(task)).collect(),
            queued: left - running,
            running,
            right,
            failed,
        });
    }
    let (run, wait): (Vec<u32>, Vec<u32>) =
        (1..=total).filter(is_left).partition(|task| known.running.contains_key(task));
    let mut rows = vec![HEADING.map(str::to_owned).to_vec()];
    rows.extend(run.iter().chain(wait.iter().take(MOST_SHOWN)).map(|task| known.one(*task).row()));
    let table = if rows.len() > 1 { table(&rows) } else { String::new() };
    print(&format!(
        "{table}{}: {state}; {running} running, {} queued, {} ended, {failed} of them not with status 0\n",
        known.folder.name(),
        left - running,
        right + failed,
    ))
}
