//! What tasks of a run are called.

use crate::farm::{self, FarmError, FarmFolder};
use ckptd_farm::Task;

/// The longest name of a task.
const LONGEST_NAME: usize = 60;

/// What tasks are called.
pub struct Names {
    tasks: farm::Tasks,
    /// The kind of each task; empty where all are of one.
    kinds: Vec<u32>,
    /// The name of each kind.
    pub kind_names: Vec<String>,
}

impl Names {
    /// Those of a run.
    ///
    /// # Errors
    /// Where they can't be read.
    pub fn of(folder: &FarmFolder) -> Result<Self, FarmError> {
        let (tasks, plan) = folder.open_tasks()?;
        let kinds = plan.map(|plan| plan.kinds).unwrap_or_default();
        let mut names = Self { tasks, kinds, kind_names: Vec::new() };
        // They are numbered in the order of their first tasks.
        for task in (1..names.kinds.len() as u32).map(Task) {
            if names.kinds[task.0 as usize] as usize == names.kind_names.len() {
                let step = names.tasks.step(task).and_then(Result::ok);
                names.kind_names.push(step.map_or_else(String::new, |step| short(step.kind())));
            }
        }
        Ok(names)
    }

    /// Whether they are of a workflow.
    pub fn is_workflow(&self) -> bool {
        !self.kind_names.is_empty()
    }

    /// A task's id in its workflow, or its command.
    pub fn task(&self, task: Task) -> String {
        match self.tasks.step(task) {
            Some(Ok(step)) => short(&step.id),
            _ => short(&String::from_utf8_lossy(&self.tasks.command(task).unwrap_or_default())),
        }
    }

    /// Its kind, by its place among the names of these.
    pub fn kind(&self, task: Task) -> usize {
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
