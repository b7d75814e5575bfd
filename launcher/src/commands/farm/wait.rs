//! `ckptd farm wait`.

use super::{Context, open};
use crate::failure::Failure;
use crate::farm::{self, Ends, FarmError};
use ckptd_farm::Task;
use std::time::{Duration, Instant};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);
/// How long nobody may run the farm: somebody may be about to.
const PATIENCE: Duration = Duration::from_secs(3);
/// The largest exit status that is a number of tasks; what is more is one more.
const MOST_COUNTED: usize = 100;

pub fn perform(context: &Context, name: &str, wanted: &[u32]) -> Result<u8, Failure> {
    let folder = open::find(context, name)?;
    let total = folder.record().tasks;
    if let Some(task) = wanted.iter().copied().find(|task| *task > total) {
        return Err(FarmError::NoTask { name: name.to_owned(), task }.into());
    }
    let mut tasks: Vec<Task> = match wanted {
        [] => (1..=total).map(Task).collect(),
        wanted => wanted.iter().copied().map(Task).collect(),
    };
    tasks.sort_unstable();
    tasks.dedup();
    let mut ends = Ends::of(&folder);
    let mut left = tasks.clone();
    let mut verdicts = Vec::new();
    let mut idle: Option<Instant> = None;
    loop {
        // What has ended before it was seen that nobody runs the farm is read after that.
        let is_running = folder.is_running();
        ends.read()?;
        left.retain(|task| {
            let verdict = ends.end(*task).map(|end| end.tried.verdict);
            verdicts.extend(verdict);
            verdict.is_none()
        });
        let Some(first) = left.first() else { break };
        match (is_running, idle) {
            (true, _) => idle = None,
            (false, None) => idle = Some(Instant::now()),
            (false, Some(since)) if since.elapsed() < PATIENCE => {}
            (false, Some(_)) => {
                let left = match left.len() {
                    1 => format!("task {}", first.0),
                    more => format!("task {} and {} more", first.0, more - 1),
                };
                return Err(FarmError::Idle { name: name.to_owned(), left }.into());
            }
        }
        std::thread::sleep(LOOK);
    }
    if let ([_], [verdict]) = (wanted, &verdicts[..]) {
        return Ok(farm::status(*verdict));
    }
    let wrong = verdicts.iter().filter(|verdict| !verdict.is_right()).count();
    Ok(u8::try_from(wrong.min(MOST_COUNTED + 1)).unwrap_or(u8::MAX))
}
