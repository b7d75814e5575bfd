//! What commands want of a task of an open farm that nobody runs.

use super::hosts::Hosts;
use super::visitors::{no_room, refusal};
use super::{machine_settings, processes};
use crate::farm::journal::Recorder;
use crate::farm::open::{Gate, note_loose};
use crate::farm::{FarmError, FarmFolder};
use ckptd_farm::{Action, Event, Farm, Settings, Task};
use std::time::Duration;

/// Does it, durably. Nothing is begun.
///
/// # Errors
/// [`FarmError::Running`] where somebody runs the farm; where it can't be done, or can't be recorded.
pub fn change_apart(folder: &FarmFolder, task: Task, event: Event) -> Result<(), FarmError> {
    let _lock = folder.lock()?;
    // Where everything was killed, the task may have lived on.
    processes::end_left(folder.path())
        .map_err(FarmError::process("end what is left of the farm"))?;
    let (tasks, _) = {
        // Who adds a task has it durable before it lets go; who was killed at that may not have.
        let gate = Gate::wait(folder.path())?;
        let mut opened = folder.open_tasks()?;
        if let Some(spool) = opened.0.spool() {
            spool.sync(&gate)?;
        }
        opened
    };
    let limits = tasks.limits()?.unwrap_or_default();
    let results = folder.results();
    std::fs::create_dir_all(&results).map_err(FarmError::io("create", &results))?;
    let (mut recorder, entries) =
        Recorder::open(&folder.journal(), &results, folder.fixed_tasks(), &tasks, 0)?;
    let mut hosts = Hosts::of(folder)?;
    let found = hosts.found(&tasks, folder)?;
    let places = hosts.are_away().then_some(0);
    let machine = machine_settings(&folder.record().settings, places);
    let machine = Settings { slots: 0, ..machine };
    let mut farm = Farm::open(machine, limits, entries, found);
    // What was found to have ended is recorded first.
    let mut actions = farm.step(Duration::ZERO, Event::Recordable(true));
    let refused = refusal(folder.name(), task, farm.stage(task), &event);
    if refused.is_none() && matches!(event, Event::Retry(_)) && !recorder.has_room_for_retry() {
        return Err(FarmError::Refused(no_room(folder.name(), task)));
    }
    if refused.is_none() {
        actions.extend(farm.step(Duration::ZERO, event));
    }
    let mut over = Vec::new();
    for action in actions {
        match action {
            Action::Record(entry) => recorder.record(entry, &tasks)?,
            Action::Forget(task, attempt) => over.push((task, attempt)),
            // With no slot nothing begins.
            _ => {}
        }
    }
    recorder.sync()?;
    for (task, attempt) in over {
        hosts.forget(task, attempt);
    }
    hosts.finish();
    if refused.is_none() {
        note_loose(folder, task)?;
    }
    refused.map_or(Ok(()), Err)
}
