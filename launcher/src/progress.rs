//! How far long work is, told on standard error: on a terminal by one line that changes, elsewhere by a line for each second in
//! which something has, from the tenth second on: whoever reads it there expects one line of what fails at once.
//!
//! Nothing is told of what takes less than a second, but by bars on a terminal. Commands that run a job tell it on terminals
//! alone: elsewhere their standard error is the job's.

use crate::INNER_CALL;
use crate::tables::printable;
use crate::text;
use indicatif::{ProgressBar, ProgressStyle};
use ratatui::crossterm::terminal;
use std::cell::Cell;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long it is from one look to the next.
pub const SECOND: Duration = Duration::from_secs(1);
/// What takes less is told of on a terminal alone.
const PATIENCE: Duration = Duration::from_secs(10);
/// `none`: nothing is told.
pub const VARIABLE: &str = "CKPTD_PROGRESS";
/// Columns of a terminal that does not tell.
const COLUMNS: u16 = 80;

/// Whether standard error is a job's where it is no terminal.
static ON_TERMINALS_ALONE: AtomicBool = AtomicBool::new(false);
/// What stands on the last line of standard error.
static LINE: Mutex<Line> = Mutex::new(Line { told: None, since: None });

/// From now on, nothing is told where standard error is no terminal.
pub fn on_terminals_alone() {
    ON_TERMINALS_ALONE.store(true, Ordering::Relaxed);
}

/// Where it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Terminal,
    Elsewhere,
    Nowhere,
}

impl Place {
    fn here() -> Self {
        let is_told = std::env::var_os(VARIABLE).is_none_or(|value| value != "none");
        if !is_told || std::env::var_os(INNER_CALL).is_some() {
            return Self::Nowhere;
        }
        // One that understands no more than text.
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        match stderr().is_terminal() {
            true if !is_dumb => Self::Terminal,
            _ if ON_TERMINALS_ALONE.load(Ordering::Relaxed) => Self::Nowhere,
            _ => Self::Elsewhere,
        }
    }
}

/// A line that changes, or lines.
#[derive(Debug)]
struct Line {
    told: Option<String>,
    /// When something was to be told for the first time.
    since: Option<Instant>,
}

fn line() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    fn show(&mut self, text: &str) {
        if self.told.as_deref() == Some(text) {
            return;
        }
        let is_long = self.since.get_or_insert_with(Instant::now).elapsed() + SECOND >= PATIENCE;
        let place = match Place::here() {
            Place::Elsewhere if !is_long => return,
            place => place,
        };
        let shown = printable(text);
        // Nobody may be there to read it.
        let _ = match place {
            Place::Terminal => {
                let shown = fitted(&format!("ckptd: {shown}"), terminal::size().ok());
                write!(stderr(), "\r\x1b[K{shown}")
            }
            Place::Elsewhere => writeln!(stderr(), "ckptd: {shown}"),
            Place::Nowhere => Ok(()),
        };
        self.told = Some(text.to_owned());
    }

    fn clear(&mut self) {
        if self.told.take().is_some() && Place::here() == Place::Terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// What fits on a line of a terminal of that size: a longer one could not be taken back.
fn fitted(text: &str, size: Option<(u16, u16)>) -> String {
    // A terminal that nobody has told its size has none (TIOCGWINSZ).
    let columns = size.map_or(COLUMNS, |(columns, _)| if columns == 0 { COLUMNS } else { columns });
    text.chars().take(usize::from(columns) - 1).collect()
}

/// Tells how far something is.
pub fn show(text: &str) {
    line().show(text);
}

/// Takes that away, for other lines.
pub fn clear() {
    line().clear();
}

/// Says something on standard error.
pub fn say(text: &str) {
    let mut line = line();
    line.clear();
    let _ = writeln!(stderr(), "ckptd: {}", printable(text));
}

/// A thread that asks once a second how far something is, until this is dropped.
#[derive(Debug)]
pub struct Watcher {
    end: Option<Sender<()>>,
}

impl Watcher {
    /// Begins. Where there can be no thread, nothing is told.
    pub fn start(mut look: impl FnMut() -> Option<String> + Send + 'static) -> Self {
        let (end, ended) = channel();
        let watch = move || {
            while ended.recv_timeout(SECOND) == Err(RecvTimeoutError::Timeout) {
                let text = look();
                let mut line = line();
                // It may be over since then.
                if ended.try_recv() != Err(TryRecvError::Empty) {
                    return;
                }
                text.iter().for_each(|text| line.show(text));
            }
        };
        let _ = std::thread::Builder::new().name("progress".to_owned()).spawn(watch);
        Self { end: Some(end) }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // First of all: nothing is shown any more then. A look that lasts is not waited for.
        drop(self.end.take());
        clear();
    }
}

/// Does something, and has another thread ask meanwhile, once a second, how far it is.
pub fn meanwhile<T>(
    look: impl FnMut() -> Option<String> + Send + 'static,
    work: impl FnOnce() -> T,
) -> T {
    let _watcher = Watcher::start(look);
    work()
}

/// In what something is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Chunks,
    Jobs,
}

impl Unit {
    fn shown(self, count: u64) -> String {
        match self {
            Self::Bytes => text::size(count),
            Self::Chunks => text::count(count, "chunk"),
            Self::Jobs => text::count(count, "job"),
        }
    }
}

/// A bar on a terminal, lines elsewhere.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    about: String,
    unit: Unit,
    told_at: Cell<Instant>,
}

impl Bar {
    /// About something of which there is so much, if that is known.
    pub fn new(about: String, unit: Unit, total: Option<u64>) -> Self {
        let (bar, template) = match (total, unit) {
            (Some(total), Unit::Bytes) => (
                ProgressBar::new(total),
                "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            ),
            (None, Unit::Bytes) => (ProgressBar::no_length(), "{msg} {bytes} {bytes_per_sec}"),
            (total, Unit::Chunks | Unit::Jobs) => {
                let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
                (bar, "{msg} {wide_bar} {pos}/{len} {eta}")
            }
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(printable(&about));
        Self { bar, about, unit, told_at: Cell::new(Instant::now()) }
    }

    /// So much more.
    pub fn inc(&self, by: u64) {
        self.bar.inc(by);
        self.tell();
    }

    /// So much of so much.
    pub fn set(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.tell();
    }

    fn tell(&self) {
        if !self.bar.is_hidden() || self.told_at.get().elapsed() < SECOND {
            return;
        }
        self.told_at.set(Instant::now());
        show(&told(&self.about, self.unit, self.bar.position(), self.bar.length()));
    }

    /// Takes it away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
        clear();
    }
}

fn told(about: &str, unit: Unit, done: u64, total: Option<u64>) -> String {
    let done = unit.shown(done);
    match total.filter(|total| *total > 0) {
        Some(total) => format!("{about}: {done} of {}", unit.shown(total)),
        None => format!("{about}: {done}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_size_has_the_usual_one() {
        let long = "x".repeat(200);
        for (size, length) in
            [(None, 79), (Some((0, 0)), 79), (Some((40, 2)), 39), (Some((1, 1)), 0)]
        {
            assert_eq!(fitted(&long, size).len(), length, "{size:?}");
        }
    }

    #[test]
    fn what_is_told() {
        assert_eq!(
            told("fold@3", Unit::Bytes, 1 << 20, Some(1 << 30)),
            "fold@3: 1.0 MiB of 1.0 GiB"
        );
        assert_eq!(told("a.tar", Unit::Bytes, 4096, None), "a.tar: 4.0 KiB");
        assert_eq!(
            told("checkpoint 1", Unit::Chunks, 1, Some(7)),
            "checkpoint 1: 1 chunk of 7 chunks"
        );
    }

    #[test]
    fn short_work_is_not_looked_at() {
        let (seen, saw) = channel();
        let look = move || seen.send(()).ok().and(None);
        assert_eq!(meanwhile(look, || 5), 5);
        assert!(saw.try_recv().is_err());
    }

    #[test]
    fn long_work_is_looked_at_and_waits_for_no_look() {
        let (seen, saw) = channel();
        let (_never, lasting) = channel::<()>();
        let look = move || {
            seen.send(()).ok()?;
            lasting.recv().ok().map(|()| String::new())
        };
        meanwhile(look, || saw.recv().unwrap());
    }
}
