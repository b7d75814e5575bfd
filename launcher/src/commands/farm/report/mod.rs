//! `ckptd farm report`: one page about a run, to be opened in a browser.
//!
//! - `page`: facts, tables, the words of each part.
//! - `chart`: what ran when, and how many at a time.
//! - `times`: the run's time without the pauses between its parts, and places for tasks.

mod chart;
mod page;
mod times;

use super::{Context, print};
use crate::failure::Failure;
use crate::farm::{self, FarmFolder};
use crate::{out, text};
use ckptd_farm::Task;
use std::path::{Path, PathBuf};

/// The file that stands for standard output.
const STANDARD_OUTPUT: &str = "-";
/// The longest name of a task.
const LONGEST_NAME: usize = 60;

/// What is told of.
struct Told {
    folder: FarmFolder,
    is_running: bool,
    history: farm::History,
    names: Names,
    now_ms: u64,
}

/// What tasks are called.
struct Names {
    tasks: farm::Tasks,
    /// The kind of each task; empty where all are of one.
    kinds: Vec<u32>,
    kind_names: Vec<String>,
}

impl Names {
    fn of(tasks: farm::Tasks, kinds: Vec<u32>) -> Self {
        let mut names = Self { tasks, kinds, kind_names: Vec::new() };
        // They are numbered in the order of their first tasks.
        for task in (1..names.kinds.len() as u32).map(Task) {
            if names.kinds[task.0 as usize] as usize == names.kind_names.len() {
                let step = names.tasks.step(task).and_then(Result::ok);
                names.kind_names.push(step.map_or_else(String::new, |step| short(step.kind())));
            }
        }
        names
    }

    fn is_workflow(&self) -> bool {
        !self.kind_names.is_empty()
    }

    /// A task's id in its workflow, or its command.
    fn task(&self, task: Task) -> String {
        match self.tasks.step(task) {
            Some(Ok(step)) => short(&step.id),
            _ => short(&String::from_utf8_lossy(&self.tasks.command(task).unwrap_or_default())),
        }
    }

    fn kind(&self, task: Task) -> usize {
        self.kinds.get(task.0 as usize).map_or(0, |kind| *kind as usize)
    }
}

fn short(name: &str) -> String {
    let mut short: String = name.chars().take(LONGEST_NAME).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    short
}

pub fn perform(context: &Context, wanted: &str, to: Option<PathBuf>) -> Result<(), Failure> {
    let folder = FarmFolder::find(&context.state, wanted)?;
    let is_running = folder.is_running();
    let now_ms = text::now_ms();
    let mut history = farm::history(&folder)?;
    if let (true, Some(part)) = (is_running, history.parts.last_mut()) {
        part.to_ms = part.to_ms.max(now_ms);
    }
    let (tasks, plan) = folder.open_tasks()?;
    let names = Names::of(tasks, plan.map(|plan| plan.kinds).unwrap_or_default());
    let to = to.unwrap_or_else(|| PathBuf::from(format!("{}.html", folder.name())));
    let page = page::of_run(&Told { folder, is_running, history, names, now_ms });
    if to == Path::new(STANDARD_OUTPUT) {
        return print(&page);
    }
    let written = out::write_file(&to, page.as_bytes());
    written.map_err(|error| Failure::of(format!("report on {wanted}"), error))?;
    print(&format!("{}\n", to.display()))
}
