//! What the user sees while tasks run, and at the end.

use crate::farm::say;
use ckptd_farm::Outcome;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::HashSet;
use std::io::IsTerminal;

/// The most different warnings of a run; what is wrong with so many is known by then.
const MOST_WARNINGS: usize = 100;

/// A bar on standard error, where that is a terminal, and lines above it.
pub struct Progress {
    bar: ProgressBar,
    told: HashSet<String>,
}

impl Progress {
    /// For so many tasks.
    pub fn new(total: u32, quiet: bool) -> Self {
        let is_shown = !quiet && std::io::stderr().is_terminal();
        let target =
            if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total.into()), target);
        if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg} {eta}") {
            bar.set_style(style);
        }
        Self { bar, told: HashSet::new() }
    }

    /// How it stands.
    pub fn show(&self, outcome: &Outcome, running: usize) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_position(
            u64::from(outcome.right) + u64::from(outcome.failed) + u64::from(outcome.skipped),
        );
        self.bar.set_message(match outcome.failed {
            0 => format!("{running} running"),
            failed => format!("{failed} failed, {running} running"),
        });
    }

    /// Says something.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| say(text));
    }

    /// Warns of something, once.
    pub fn warn(&mut self, text: &str) {
        if self.told.len() < MOST_WARNINGS && self.told.insert(text.to_owned()) {
            self.say(&format!("warning: {text}"));
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
