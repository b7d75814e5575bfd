//! Where the process that calls commands hears of events: from the job's launcher, or from its cluster.

use super::note::{LONGEST, Note};
use crate::cluster::Cluster;
use protocol::cluster::client::{Answer, Ask, NO_JOB};
use protocol::cluster::job_event::{Happening, JobEvent};
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Events on their way; where more happen, the source waits.
const MOST_WAITING: usize = 64;

/// How often a cluster is asked.
const LOOK: Duration = Duration::from_millis(500);

/// How long a cluster that does not answer is asked again: its jobs stand still meanwhile, and are still there then.
const LOST_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// The same, where somebody wants this process to end, as at a shutdown: the cluster may only be late to tell of the job's
/// end.
const ENDING_LIMIT: Duration = Duration::from_secs(10);

/// Why a job has ended whose launcher has gone without a word.
const LAUNCHER_GONE: &str = "ckptd was killed, and the job with it";

/// How a job has ended that was removed before anybody could ask.
const REMOVED: &str = "it was removed after its end";

/// What is heard.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// What the user calls the job.
    Name(String),
    /// Something has happened.
    Happened(JobEvent),
    /// So many events have happened of which nothing is known any more.
    Forgotten(u64),
    /// Nothing more is going to happen.
    Over,
    /// Nobody waits for what is still being called.
    GiveUp,
}

/// Events that the launcher of a job on this machine tells of.
///
/// # Errors
/// Where there is no thread for it.
pub fn of_launcher() -> io::Result<Receiver<Told>> {
    let (sender, told) = sync_channel(MOST_WAITING);
    spawn("notes", move || {
        let mut notes = Notes::default();
        read(&mut BufReader::new(io::stdin()), |note| notes.take(note, &sender));
        // Nobody listens any more where that fails.
        let _ = notes.end(&sender);
    })?;
    Ok(told)
}

/// Events of a job of a cluster, from the one behind so many on. `is_to_end`: a cluster that does not answer is not waited for
/// any more.
///
/// # Errors
/// As [`of_launcher`].
pub fn of_cluster(
    cluster: Cluster,
    job: String,
    known: u64,
    is_to_end: Arc<AtomicBool>,
) -> io::Result<Receiver<Told>> {
    let (sender, told) = sync_channel(MOST_WAITING);
    let (ends, ended) = channel();
    spawn("notes", {
        let sender = sender.clone();
        move || read(&mut BufReader::new(io::stdin()), |note| pass_on(note, &sender, &ends))
    })?;
    let mut watch = Watch { cluster, job, known, name: String::new(), sender, is_to_end };
    // Nobody listens any more where that fails.
    spawn("events", move || drop(watch.drive(&ended)))?;
    Ok(told)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Takes notes until there are no more, or `take` wants none.
fn read(from: &mut impl BufRead, mut take: impl FnMut(Note) -> Result<(), Nobody>) {
    loop {
        let mut line = String::new();
        match (&mut *from).take(LONGEST as u64).read_line(&mut line) {
            Ok(1..) => {}
            _ => return,
        }
        // A line of another version of ckptd, which was installed meanwhile, is no note.
        let Some(note) = Note::of(line.trim_end()) else { continue };
        if take(note).is_err() {
            return;
        }
    }
}

/// Nobody listens any more.
#[derive(Debug)]
struct Nobody;

fn tell(sender: &SyncSender<Told>, told: Told) -> Result<(), Nobody> {
    sender.send(told).map_err(|_| Nobody)
}

/// What the notes of a job on this machine come to.
#[derive(Debug, Default)]
struct Notes {
    runs: bool,
    ended: bool,
    over: bool,
}

impl Notes {
    fn take(&mut self, note: Note, sender: &SyncSender<Told>) -> Result<(), Nobody> {
        match note {
            Note::Runs => self.runs = true,
            Note::Happened { event } => {
                self.ended |= matches!(event.what, Happening::Ended { .. });
                tell(sender, Told::Happened(event))?;
            }
            Note::Over if !std::mem::replace(&mut self.over, true) => tell(sender, Told::Over)?,
            Note::Over => {}
            Note::GiveUp => tell(sender, Told::GiveUp)?,
        }
        Ok(())
    }

    /// The launcher has gone; where it has not said that all is over, it was killed.
    fn end(&self, sender: &SyncSender<Told>) -> Result<(), Nobody> {
        if self.runs && !self.ended && !self.over {
            let what = Happening::ended(None, Some(LAUNCHER_GONE), None);
            tell(sender, Told::Happened(JobEvent { at_ms: None, what }))?;
        }
        if self.over { Ok(()) } else { tell(sender, Told::Over) }
    }
}

/// Of a job on a cluster its launcher tells the end: it is the first to know, and the cluster of an allocation ends with it.
fn pass_on(note: Note, sender: &SyncSender<Told>, ends: &Sender<JobEvent>) -> Result<(), Nobody> {
    match note {
        Note::Happened { event } => {
            // Where the cluster was quicker to tell it, nobody wants to know it any more; what comes after it counts.
            let _ = ends.send(event);
            Ok(())
        }
        Note::GiveUp => tell(sender, Told::GiveUp),
        Note::Runs | Note::Over => Ok(()),
    }
}

/// Asks a cluster again and again.
struct Watch {
    cluster: Cluster,
    job: String,
    /// Events that are known.
    known: u64,
    name: String,
    sender: SyncSender<Told>,
    is_to_end: Arc<AtomicBool>,
}

/// How a look at the cluster came out.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// The job runs.
    Runs,
    /// Nothing more is going to happen.
    Over,
    /// It is not there any more, and nobody has told its end.
    Removed,
    /// There is no answer.
    Nothing,
}

impl Watch {
    /// Until the job's end; `ended`: what its launcher tells of that.
    fn drive(&mut self, ended: &Receiver<JobEvent>) -> Result<(), Nobody> {
        let mut lost: Option<Instant> = None;
        let mut end: Option<JobEvent> = None;
        loop {
            match self.look()? {
                Seen::Over => break,
                Seen::Removed => {
                    let removed = || JobEvent {
                        at_ms: None,
                        what: Happening::ended(None, Some(REMOVED), None),
                    };
                    let event = end.or_else(|| ended.try_recv().ok()).unwrap_or_else(removed);
                    tell(&self.sender, Told::Happened(event))?;
                    break;
                }
                Seen::Runs => lost = None,
                Seen::Nothing
                    if lost.get_or_insert_with(Instant::now).elapsed() > self.patience() =>
                {
                    break;
                }
                Seen::Nothing => {}
            }
            // What happened before it has been told by now, unless the cluster has gone with the job.
            if let Some(event) = end {
                tell(&self.sender, Told::Happened(event))?;
                break;
            }
            end = match ended.recv_timeout(LOOK) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    sleep(LOOK);
                    None
                }
            };
        }
        tell(&self.sender, Told::Over)
    }

    /// For how long a cluster that does not answer is waited for.
    fn patience(&self) -> Duration {
        if self.is_to_end.load(Ordering::Relaxed) { ENDING_LIMIT } else { LOST_LIMIT }
    }

    fn look(&mut self) -> Result<Seen, Nobody> {
        let ask = Ask::Events { job: self.job.clone(), known: Some(self.known) };
        let answer = self.cluster.open(&ask).and_then(|mut link| link.next());
        match answer {
            Ok(Answer::Events { name, events, forgotten, known, over }) => {
                self.known = known;
                if name != self.name {
                    self.name.clone_from(&name);
                    tell(&self.sender, Told::Name(name))?;
                }
                if forgotten > 0 {
                    tell(&self.sender, Told::Forgotten(forgotten))?;
                }
                for event in events {
                    let is_end = matches!(event.what, Happening::Ended { .. });
                    tell(&self.sender, Told::Happened(event))?;
                    // What comes after it belongs to a restart, and to what that is to call.
                    if is_end {
                        return Ok(Seen::Over);
                    }
                }
                Ok(if over { Seen::Over } else { Seen::Runs })
            }
            Ok(Answer::Failed { reason, .. }) if reason.starts_with(NO_JOB) => Ok(Seen::Removed),
            // An agent that is started again is there soon, and so is another coordinator.
            Ok(_) | Err(_) => Ok(Seen::Nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::agent::ExitKind;

    fn happened(what: Happening) -> Note {
        Note::Happened { event: JobEvent { at_ms: Some(1), what } }
    }

    /// What comes of notes, where their end is the launcher's.
    fn told(notes: &[Note]) -> Vec<Told> {
        let lines: String = notes.iter().filter_map(Note::line).collect();
        let (sender, receiver) = sync_channel(MOST_WAITING);
        let mut taken = Notes::default();
        let lines = format!("something else\n{lines}");
        read(&mut lines.as_bytes(), |note| taken.take(note, &sender));
        taken.end(&sender).unwrap();
        drop(sender);
        receiver.iter().collect()
    }

    #[test]
    fn a_launcher_that_is_killed_takes_its_job_along() {
        let ended = Happening::ended(Some(ExitKind::Exited(0)), None, None);
        let said = JobEvent { at_ms: Some(1), what: ended.clone() };
        let all = [Note::Runs, happened(ended), Note::Over, Note::GiveUp];
        assert_eq!(told(&all), [Told::Happened(said.clone()), Told::Over, Told::GiveUp]);
        assert_eq!(told(&all[..2]), [Told::Happened(said), Told::Over]);
        let killed = Happening::ended(None, Some(LAUNCHER_GONE), None);
        let killed = JobEvent { at_ms: None, what: killed };
        assert_eq!(told(&all[..1]), [Told::Happened(killed), Told::Over]);
        // It never ran, or goes on without its launcher.
        assert_eq!(told(&[]), [Told::Over]);
        assert_eq!(told(&[Note::Runs, Note::Over]), [Told::Over]);
    }
}
