//! `ckptd farm report`: one page about a run, to be opened in a browser.
//!
//! - `page`: facts, tables, the words of each part.
//! - `chart`: what ran when, and how many at a time.
//! - `times`: the run's time without the pauses between its parts, and places for tasks.

mod chart;
mod page;
mod times;

use super::names::Names;
use super::{Context, print};
use crate::failure::Failure;
use crate::farm::{self, FarmFolder};
use crate::{out, text};
use std::path::{Path, PathBuf};

/// The file that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// What is told of.
struct Told {
    folder: FarmFolder,
    is_running: bool,
    history: farm::History,
    names: Names,
    now_ms: u64,
}

pub fn perform(context: &Context, wanted: &str, to: Option<PathBuf>) -> Result<(), Failure> {
    let folder = FarmFolder::find(&context.state, wanted)?;
    let is_running = folder.is_running();
    let now_ms = text::now_ms();
    let mut history = farm::history(&folder)?;
    if let (true, Some(part)) = (is_running, history.parts.last_mut()) {
        part.to_ms = part.to_ms.max(now_ms);
    }
    let names = Names::of(&folder)?;
    let to = to.unwrap_or_else(|| PathBuf::from(format!("{}.html", folder.name())));
    let page = page::of_run(&Told { folder, is_running, history, names, now_ms });
    if to == Path::new(STANDARD_OUTPUT) {
        return print(&page);
    }
    let written = out::write_file(&to, page.as_bytes());
    written.map_err(|error| Failure::of(format!("report on {wanted}"), error))?;
    print(&format!("{}\n", to.display()))
}
