//! `ckptd farm status`.

use super::names::Names;
use super::{Context, open, print, print_json, tasks};
use crate::cli::{ListArguments, USUAL_FARM};
use crate::failure::Failure;
use crate::farm::{self, FarmFolder, History};
use crate::tables::{printable, table};
use crate::text;
use ckptd_farm::Task;
use serde::Serialize;

/// A kind of tasks; the keys stay as they are.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
struct Kind {
    kind: String,
    tasks: u32,
    right: u32,
    failed: u32,
    skipped: u32,
    left: u32,
    /// How long those took on average that have ended right, in seconds.
    mean_seconds: Option<f64>,
}

pub fn perform(
    context: &Context,
    wanted: Option<&str>,
    farm: Option<&str>,
    list: &ListArguments,
) -> Result<(), Failure> {
    let folder = match wanted {
        None => open::find(context, farm.unwrap_or(USUAL_FARM))?,
        Some(word) => match (word.parse(), FarmFolder::find(&context.state, word)) {
            // A run may be called by a number, too.
            (Ok(_), Ok(run)) if farm.is_none() => run,
            (Ok(task), _) => {
                let folder = open::find(context, farm.unwrap_or(USUAL_FARM))?;
                return tasks::one(&folder, Task(task), list);
            }
            (Err(_), run) => run?,
        },
    };
    if folder.record().open.is_some() {
        return tasks::all(&folder, list);
    }
    let history = farm::history(&folder)?;
    let names = Names::of(&folder)?;
    let mut kinds: Vec<Kind> = names
        .kind_names
        .iter()
        .map(|name| Kind { kind: printable(name), ..Kind::default() })
        .collect();
    if kinds.is_empty() {
        kinds.push(Kind { kind: "task".to_owned(), ..Kind::default() });
    }
    count(&mut kinds, folder.record().tasks, &history, |task| names.kind(task));
    if list.json {
        return print_json(&kinds);
    }
    let heading = ["KIND", "TASKS", "RIGHT", "FAILED", "SKIPPED", "LEFT", "MEAN"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(kinds.iter().map(|kind| {
        let mean = kind.mean_seconds.map(|seconds| text::micros((seconds * 1e6) as u64));
        let numbers = [kind.tasks, kind.right, kind.failed, kind.skipped, kind.left];
        let numbers = numbers.iter().map(u32::to_string);
        let ends = [mean.unwrap_or_else(|| "-".to_owned())];
        [kind.kind.clone()].into_iter().chain(numbers).chain(ends).collect()
    }));
    print(&table(&rows))
}

fn count(kinds: &mut [Kind], total: u32, history: &History, kind: impl Fn(Task) -> usize) {
    let mut took = vec![0u64; kinds.len()];
    for task in (1..=total).map(Task) {
        if let Some(found) = kinds.get_mut(kind(task)) {
            found.tasks += 1;
        }
    }
    for span in history.spans.iter().filter(|span| span.verdict.is_right()) {
        let kind = kind(span.task);
        if let (Some(found), Some(took)) = (kinds.get_mut(kind), took.get_mut(kind)) {
            found.right += 1;
            *took += span.to_ms.saturating_sub(span.from_ms);
        }
    }
    for task in history.failed.keys() {
        if let Some(found) = kinds.get_mut(kind(*task)) {
            found.failed += 1;
        }
    }
    for task in history.skipped.keys() {
        if let Some(found) = kinds.get_mut(kind(*task)) {
            found.skipped += 1;
        }
    }
    for (found, took) in kinds.iter_mut().zip(took) {
        let over = found.right + found.failed + found.skipped;
        found.left = found.tasks.saturating_sub(over);
        found.mean_seconds =
            (found.right > 0).then(|| took as f64 / 1000.0 / f64::from(found.right));
    }
}
