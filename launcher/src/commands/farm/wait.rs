//! `ckptd farm wait`.

use super::numbers::Numbers;
use super::outlook::Outlook;
use super::patience::Patience;
use super::{Context, open, print};
use crate::cli::WaitArguments;
use crate::failure::Failure;
use crate::farm::{self, Ends, FarmError, FarmFolder};
use ckptd_farm::{Task, Verdict};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);
/// The largest exit status that is a number of tasks; what is more is one more.
const MOST_COUNTED: usize = 100;

pub fn perform(context: &Context, arguments: &WaitArguments) -> Result<u8, Failure> {
    let WaitArguments { farm: name, each, stdin, resume, tasks: wanted } = arguments;
    let folder = open::find(context, name)?;
    let mut wait = Wait {
        ends: Ends::of(&folder),
        total: folder.record().tasks,
        tasks: each.then(|| folder.open_tasks()).transpose()?.map(|(tasks, _)| tasks),
        left: BTreeSet::new(),
        wants_more: true,
        wrong: 0,
        last: None,
        outlook: Outlook::of(&folder),
        stuck: None,
        folder,
    };
    let mut numbers = stdin.then(Numbers::of_stdin).transpose()?;
    match (&wanted[..], stdin) {
        ([], false) => wait.left = (1..=wait.total).map(Task).collect(),
        (wanted, _) => wait.want(context, wanted)?,
    }
    let mut patience = Patience::new(*resume);
    loop {
        // What has ended before it was seen that nobody runs the farm is read after that.
        let is_running = wait.folder.is_running();
        wait.take_ends()?;
        let is_more = numbers.as_ref().is_some_and(|numbers| !numbers.is_over());
        wait.take_stuck(is_more)?;
        if *each && nobody_reads() {
            return Err(Failure::Output(io::ErrorKind::BrokenPipe.into()));
        }
        let is_done = wait.left.is_empty();
        if !is_done {
            patience.look(&wait.folder, is_running, || name_of(&wait.left))?;
        }
        match &mut numbers {
            Some(numbers) if !numbers.is_over() => {
                let more = numbers.wait((!is_done).then_some(LOOK))?;
                wait.want(context, &more)?;
            }
            _ if is_done => return wait.status(wanted.len() == 1 && !stdin),
            _ => std::thread::sleep(LOOK),
        }
    }
}

/// Whether standard output is a pipe that nobody reads any more.
fn nobody_reads() -> bool {
    let stdout = io::stdout();
    let mut output = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let polled = poll(&mut output, PollTimeout::ZERO);
    polled.is_ok() && output[0].revents().is_some_and(|told| told.contains(PollFlags::POLLERR))
}

/// What is waited for.
struct Wait {
    folder: FarmFolder,
    ends: Ends,
    /// How many tasks the farm has, as far as is known.
    total: u32,
    /// Their commands, where each end is told.
    tasks: Option<farm::Tasks>,
    left: BTreeSet<Task>,
    /// Whether some were added since it was looked which have ended.
    wants_more: bool,
    /// How many have not ended right.
    wrong: usize,
    last: Option<Verdict>,
    outlook: Outlook,
    /// What to say at the end of those that were told of and could not be brought back.
    stuck: Option<FarmError>,
}

impl Wait {
    /// Waits for these, too.
    fn want(&mut self, context: &Context, tasks: &[u32]) -> Result<(), FarmError> {
        for task in tasks.iter().copied() {
            if task > self.total {
                let name = self.folder.name();
                self.total = open::find(context, name)?.record().tasks;
                if task > self.total {
                    return Err(FarmError::NoTask { name: name.to_owned(), task });
                }
            }
            self.left.insert(Task(task));
            self.wants_more = true;
        }
        Ok(())
    }

    /// Takes note of what has ended meanwhile.
    fn take_ends(&mut self) -> Result<(), Failure> {
        let is_more = self.ends.read()?;
        if !std::mem::take(&mut self.wants_more) && !is_more {
            // There may be many to look for.
            return Ok(());
        }
        let mut lines = String::new();
        let Self { ends, tasks, left, wrong, last, .. } = self;
        left.retain(|task| {
            let Some(end) = ends.end(*task) else { return true };
            let verdict = end.tried.verdict;
            *wrong += usize::from(!verdict.is_right());
            *last = Some(verdict);
            lines
                .extend(tasks.as_ref().map(|tasks| farm::line_of_end(end.tried, end.at_ms, tasks)));
            false
        });
        if lines.is_empty() { Ok(()) } else { print(&lines) }
    }

    /// Takes note of what could not be brought back: its end does not come by itself. Others are waited for first; `is_more`:
    /// those that are not known yet, too.
    fn take_stuck(&mut self, is_more: bool) -> Result<(), Failure> {
        if self.left.is_empty() {
            return Ok(());
        }
        self.outlook.look(|| name_of(&self.left))?;
        let Some(tasks) = &self.tasks else {
            let first = self.left.first().filter(|_| !is_more);
            let first = first.filter(|_| self.outlook.are_stuck(&self.left));
            return match first {
                Some(first) => Err(self.outlook.failure(*first, name_of(&self.left)).into()),
                None => Ok(()),
            };
        };
        let stuck: Vec<Task> = self.outlook.among(&self.left).collect();
        let mut lines = String::new();
        for task in stuck {
            self.left.remove(&task);
            let reason = self.outlook.why(task).unwrap_or_default();
            lines.push_str(&farm::line_of_stuck(task, reason, tasks));
            let failure = || self.outlook.failure(task, format!("task {}", task.0));
            self.stuck.get_or_insert_with(failure);
        }
        if lines.is_empty() { Ok(()) } else { print(&lines) }
    }

    /// `of_one`: that of the one task.
    ///
    /// # Errors
    /// Where some could not be brought back.
    fn status(self, of_one: bool) -> Result<u8, Failure> {
        if let Some(failure) = self.stuck {
            return Err(failure.into());
        }
        Ok(match self.last {
            Some(verdict) if of_one => farm::status(verdict),
            _ => u8::try_from(self.wrong.min(MOST_COUNTED + 1)).unwrap_or(u8::MAX),
        })
    }
}

/// Names what has not ended.
fn name_of(tasks: &BTreeSet<Task>) -> String {
    let first = tasks.first().map_or(0, |task| task.0);
    match tasks.len() {
        1 => format!("task {first}"),
        more => format!("task {first} and {} more", more.saturating_sub(1)),
    }
}
