//! How far long work is, told on standard error once it has taken more than a second: on a terminal by a line that changes,
//! elsewhere by a line for each second in which something has.

use crate::tables::printable;
use crate::text;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nothing is told of what takes less, and how long it is from one line to the next.
pub const SECOND: Duration = Duration::from_secs(1);

/// A line that changes, or lines.
#[derive(Debug)]
pub struct Line {
    is_terminal: bool,
    told: Option<String>,
}

impl Default for Line {
    fn default() -> Self {
        Self { is_terminal: stderr().is_terminal(), told: None }
    }
}

impl Line {
    /// Tells how far it is.
    pub fn show(&mut self, text: &str) {
        if self.told.as_deref() == Some(text) {
            return;
        }
        let shown = printable(text);
        // Nobody may be there to read it.
        let _ = match self.is_terminal {
            true => write!(stderr(), "\r\x1b[Kckptd: {shown}"),
            false => writeln!(stderr(), "ckptd: {shown}"),
        };
        self.told = Some(text.to_owned());
    }

    /// Takes it away, for other lines.
    pub fn clear(&mut self) {
        if self.told.take().is_some() && self.is_terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// Does something, and has another thread ask meanwhile, once a second, how far it is.
pub fn meanwhile<T>(
    mut look: impl FnMut() -> Option<String> + Send,
    work: impl FnOnce() -> T,
) -> T {
    let (end, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut line = Line::default();
            while ended.recv_timeout(SECOND) == Err(RecvTimeoutError::Timeout) {
                if let Some(text) = look() {
                    line.show(&text);
                }
            }
            line.clear();
        });
        let done = work();
        drop(end);
        done
    })
}

/// A thread that asks once a second how far something is, until this is dropped.
#[derive(Debug)]
pub struct Watcher {
    line: Arc<Mutex<Line>>,
    end: Option<Sender<()>>,
}

impl Watcher {
    /// Begins; that nothing is told where there can be no thread harms nobody.
    pub fn start(mut look: impl FnMut() -> Option<String> + Send + 'static) -> Self {
        let line = Arc::<Mutex<Line>>::default();
        let (end, ended) = channel();
        let shown = line.clone();
        let watch = move || {
            while ended.recv_timeout(SECOND) == Err(RecvTimeoutError::Timeout) {
                let text = look();
                let mut line = shown.lock().unwrap_or_else(PoisonError::into_inner);
                // It may be over since then.
                if ended.try_recv() != Err(TryRecvError::Empty) {
                    return;
                }
                text.iter().for_each(|text| line.show(text));
            }
        };
        let _ = std::thread::Builder::new().name("progress".to_owned()).spawn(watch);
        Self { line, end: Some(end) }
    }

    /// Takes its line away, for others.
    pub fn clear(&self) {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // First of all: nothing is shown any more then.
        drop(self.end.take());
        self.clear();
    }
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
    lines: RefCell<Lines>,
}

/// What is told where there is no terminal.
#[derive(Debug)]
struct Lines {
    line: Line,
    since: Instant,
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
        bar.set_message(about.clone());
        let lines = RefCell::new(Lines { line: Line::default(), since: Instant::now() });
        Self { bar, about, unit, lines }
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
        let mut lines = self.lines.borrow_mut();
        if !self.bar.is_hidden() || lines.since.elapsed() < SECOND {
            return;
        }
        lines.since = Instant::now();
        let text = told(&self.about, self.unit, self.bar.position(), self.bar.length());
        lines.line.show(&text);
    }

    /// Takes it away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
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
        let mut looks = 0;
        let look = || {
            looks += 1;
            None
        };
        assert_eq!(meanwhile(look, || 5), 5);
        assert_eq!(looks, 0);
        let (mut looks, (seen, saw)) = (0, channel());
        let look = || {
            looks += 1;
            seen.send(looks).ok().and(None)
        };
        meanwhile(look, || saw.recv().unwrap());
    }
}
