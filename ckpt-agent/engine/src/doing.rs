//! What a thread of the engine is doing: for the error of a step that fails or does not end.
//!
//! Each thread has a cell, which the stages set as they go from process to process and from object to object: the last
//! thing begun, not a history. Setting it costs some nanoseconds, whether anybody looks or not.
//!
//! # Spans, and where there are none
//!
//! Beside the cell stand spans of `tracing`: `debug` for stages and processes, `trace` for objects and threads. They are
//! on the agent's threads only. A job's init is another process ([`super::job_init`]), executed anew and without a
//! subscriber, and it must not get one: it forks helpers that go on as ordinary code, and a subscriber's locks and
//! descriptors would be theirs, too. So what runs in the init (all of [`super::restore`], and the launch) calls
//! [`super::job_init::stages`] instead: a message on its socket, for which the agent enters the span in its own process.
//! What runs in those helpers (`restore/tree`, `restore/helper.rs`, `split/standin.rs`, `job_init/launch.rs` behind its
//! fork) tells nothing: between its fork and its last call a helper has descriptors that are not its own, and the init's
//! socket may be one of those that it has closed already.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::graph::Pid;

/// What an activity is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    /// The job as a whole.
    Job,
    /// A process, as the job numbers it.
    Process(Pid),
    /// A process, as this machine numbers it.
    HostProcess(i32),
    /// A thread of a process, as this machine numbers them.
    HostThread {
        /// The thread.
        tid: i32,
        /// Its process.
        pid: i32,
    },
    /// A descriptor of a process, as the job numbers it.
    Descriptor {
        /// The process.
        pid: Pid,
        /// The descriptor.
        fd: i32,
    },
    /// All open file descriptions of a kind.
    Objects {
        /// The kind.
        kind: &'static str,
        /// How many.
        count: usize,
    },
}

/// An activity, in words that follow "last: ".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// A participle, and what belongs to it.
    pub what: &'static str,
    /// What it is about.
    pub thing: Thing,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what;
        match self.thing {
            Thing::Job => write!(f, "{what}"),
            Thing::Process(pid) => write!(f, "{what} process {pid}"),
            Thing::HostProcess(pid) => write!(f, "{what} process {pid} of this machine"),
            Thing::HostThread { tid, pid } => {
                write!(f, "{what} thread {tid} of process {pid} of this machine")
            }
            Thing::Descriptor { pid, fd } => write!(f, "{what} descriptor {fd} of process {pid}"),
            Thing::Objects { kind, count } => write!(f, "{what} {count} of kind {kind}"),
        }
    }
}

/// The cell of a thread, for others to look at.
#[derive(Debug, Clone, Default)]
pub struct Doing(Arc<Mutex<Cell>>);

#[derive(Debug, Default)]
struct Cell {
    last: Option<Activity>,
    /// How often another thing was begun than the last one.
    begun: u64,
}

thread_local! {
    static OWN: RefCell<Doing> = RefCell::default();
}

impl Doing {
    /// That of the calling thread.
    pub fn own() -> Self {
        OWN.with_borrow(Self::clone)
    }

    /// The last thing that its thread has begun.
    pub fn last(&self) -> Option<Activity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// How many things its thread has begun so far, one after the other: to do the same again and again is no progress.
    pub fn begun(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).begun
    }

    fn set(&self, activity: Option<Activity>) {
        let mut cell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cell.begun += u64::from(activity.is_some() && activity != cell.last);
        cell.last = activity;
    }
}

/// The calling thread begins something.
pub fn begin(what: &'static str, thing: Thing) {
    OWN.with_borrow(|own| own.set(Some(Activity { what, thing })));
}

/// The calling thread has nothing of this kind in hand.
pub fn nothing() {
    OWN.with_borrow(|own| own.set(None));
}

/// What another thread was doing is now the calling thread's concern.
pub fn take_over(activity: Option<Activity>) {
    OWN.with_borrow(|own| own.set(activity));
}

/// The last thing that the calling thread has begun.
pub fn last() -> Option<Activity> {
    OWN.with_borrow(Doing::last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_thing_is_progress() {
        let before = Doing::own().begun();
        for fd in [3, 3, 3, 4, 5, 5] {
            begin("reading", Thing::Descriptor { pid: 1, fd });
        }
        assert_eq!(Doing::own().begun() - before, 3);
        nothing();
        assert_eq!(Doing::own().begun() - before, 3);
    }

    #[test]
    fn others_see_the_last_thing_begun() {
        let (told, hear) = std::sync::mpsc::channel();
        let (go, end) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            begin("reading", Thing::Process(3));
            begin("reading", Thing::Descriptor { pid: 3, fd: 5 });
            told.send(Doing::own()).unwrap();
            end.recv().unwrap();
            nothing();
        });
        let doing = hear.recv().unwrap();
        let text = doing.last().map(|activity| activity.to_string());
        assert_eq!(text.as_deref(), Some("reading descriptor 5 of process 3"));
        assert_eq!(last(), None, "a thread's cell is its own");
        go.send(()).unwrap();
        worker.join().unwrap();
        assert_eq!(doing.last(), None);
    }
}
