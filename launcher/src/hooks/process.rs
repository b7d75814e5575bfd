//! What the process does that calls commands: it passes events on to the queue, and does what that says.

use super::called::Called;
use super::hook::{Hook, Kind};
use super::line;
use super::queue::{Action, Call, How, Input, Queue, Run};
use super::said::{Log, Said};
use super::source::{self, Told};
use super::{HELD, hook_variables};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::text;
use nix::sys::signal::{SigSet, Signal};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often commands are looked at that run.
const LOOK: Duration = Duration::from_millis(20);

/// How long nothing is looked at where none runs.
const REST: Duration = Duration::from_secs(60);

/// What it is called with.
#[derive(Debug, Clone, clap::Args)]
pub struct Calling {
    /// The job's id.
    #[arg(long)]
    id: String,
    /// What the user calls it.
    #[arg(long)]
    name: String,
    /// The socket of the cluster, where it runs on one.
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// Events of it that were before.
    #[arg(long, default_value_t = 0)]
    known: u64,
    /// Nobody sees what is said.
    #[arg(long)]
    alone: bool,
}

/// Calls commands until the job is over and they have ended.
///
/// # Errors
/// Where there are no threads for it.
pub fn perform(calling: Calling) -> Result<(), Failure> {
    let failed = |error| Failure::of("call commands", error);
    // Whoever ends all processes of a service or an allocation ends the job by that, of which the commands are to hear. Its
    // own end comes with the job's. What it calls has these signals as usual, since nobody handles them there.
    let heard = Arc::new(AtomicBool::new(false));
    for signal in HELD {
        signal_hook::flag::register(signal as i32, Arc::clone(&heard)).map_err(failed)?;
    }
    // Neither the keys of the terminal nor its hangup are for the commands, nor is what a launcher has held up.
    let _ = nix::unistd::setsid();
    let _ = SigSet::empty().thread_set_mask();
    let on = hooks().map_err(|error| Failure::of("call commands", error))?;
    let Calling { id, name, cluster, known, alone } = calling;
    let (log, told) = match cluster.map(Cluster::at) {
        None => (Log::Launcher, source::of_launcher()),
        Some(cluster) => (
            Log::Cluster(cluster.clone(), id.clone()),
            source::of_cluster(cluster, id.clone(), known, heard),
        ),
    };
    let told = told.map_err(failed)?;
    let said = Said::start(log, alone).map_err(failed)?;
    let began = Instant::now();
    let mut process =
        Process { id, name, queue: Queue::new(on), running: BTreeMap::new(), began, said };
    process.drive(&told);
    process.said.finish();
    Ok(())
}

/// What is called, and when.
fn hooks() -> Result<Vec<Hook>, String> {
    let told = hook_variables().map_while(|name| std::env::var(name).ok());
    told.map(|hook| hook.parse::<Hook>().map_err(|error| error.to_string())).collect()
}

struct Process {
    id: String,
    name: String,
    queue: Queue,
    running: BTreeMap<Run, (Call, Called)>,
    began: Instant,
    said: Said,
}

impl Process {
    fn drive(&mut self, told: &Receiver<Told>) {
        let mut is_open = true;
        while !self.queue.is_done() {
            let wait = self.wait();
            let input = match is_open.then(|| told.recv_timeout(wait)) {
                Some(Ok(told)) => self.hear(told),
                Some(Err(RecvTimeoutError::Timeout)) => Input::Clock,
                Some(Err(RecvTimeoutError::Disconnected)) => {
                    is_open = false;
                    Input::Close
                }
                None => {
                    std::thread::sleep(wait);
                    Input::Clock
                }
            };
            self.feed(input);
            self.look();
        }
    }

    /// How long nothing has to be done if nothing happens.
    fn wait(&self) -> Duration {
        if !self.running.is_empty() {
            return LOOK;
        }
        let deadline = self.queue.deadline();
        deadline.map_or(REST, |deadline| deadline.saturating_sub(self.began.elapsed()).min(REST))
    }

    fn hear(&mut self, told: Told) -> Input {
        match told {
            Told::Name(name) => {
                self.name = name;
                Input::Clock
            }
            Told::Happened(event) => {
                let line = line::line(&event, &self.id, &self.name, text::now_ms());
                Input::Happened(Kind::of(&event.what), line)
            }
            Told::Forgotten(number) => {
                self.said
                    .warn(&format!("for {number} events nothing was called: they came too fast"));
                Input::Clock
            }
            Told::Over => Input::Close,
            Told::GiveUp => Input::GiveUp,
        }
    }

    /// Gives the queue an input and does what it says, until nothing is left to be done.
    fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for action in self.queue.step(self.began.elapsed(), input) {
                match action {
                    Action::Start(run, call) => match Called::start(&call, &self.name) {
                        Ok(called) => drop(self.running.insert(run, (call, called))),
                        Err(error) => {
                            inputs.push(Input::Ended(run, How::NotStarted(error.to_string())));
                        }
                    },
                    Action::Terminate(run) => self.signal(run, Signal::SIGTERM),
                    Action::Kill(run) => self.signal(run, Signal::SIGKILL),
                    Action::Warn(text) => self.said.warn(&text),
                }
            }
        }
    }

    fn signal(&self, run: Run, signal: Signal) {
        if let Some((_, called)) = self.running.get(&run) {
            called.signal(signal);
        }
    }

    /// Looks who has ended.
    fn look(&mut self) {
        let mut ended = Vec::new();
        for (run, (_, called)) in &mut self.running {
            match called.look() {
                Ok(None) => {}
                Ok(Some(how)) => ended.push((*run, how)),
                Err(error) => ended.push((*run, How::NotStarted(error.to_string()))),
            }
        }
        for (run, how) in ended {
            if let Some((call, called)) = self.running.remove(&run) {
                self.said.pass_on(&call, &called.lines());
            }
            self.feed(Input::Ended(run, how));
        }
    }
}
