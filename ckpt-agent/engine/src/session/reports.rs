//! How far a step has come that may take long while the job stands, and what it is doing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use protocol::agent::{AgentEvent, InstanceEvent};

use crate::doing::{Activity, Doing};

/// How often it is reported.
const REPORT: Duration = Duration::from_secs(2);

/// Takes events.
pub type Events = dyn Fn(InstanceEvent) + Send + Sync;

/// Reports as long as it lives; none comes after that.
pub struct Reports(Arc<(Mutex<bool>, Condvar)>);

impl Reports {
    /// Of what this counter counts, and of what a thread is doing: who goes from one process, thread or descriptor to
    /// the next gets on, too, however many there are. Without a thread for it nothing is reported.
    pub fn begin(number: u64, counter: Arc<AtomicU64>, doing: Doing, events: Arc<Events>) -> Self {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let own = shared.clone();
        let _ = std::thread::Builder::new().name("step-progress".into()).spawn(move || {
            let (done, woken) = &*own;
            let done_so_far = || counter.load(Ordering::Relaxed).saturating_add(doing.begun());
            let mut told = done_so_far();
            let mut said = None;
            let mut guard = done.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                let waited = woken.wait_timeout_while(guard, REPORT, |done| !*done);
                guard = waited.unwrap_or_else(PoisonError::into_inner).0;
                if *guard {
                    return;
                }
                say_what(number, &doing, &mut said, &events);
                let bytes = done_so_far();
                if bytes > told {
                    told = bytes;
                    events(AgentEvent::Progress { checkpoint: number, bytes }.into());
                }
            }
        });
        Self(shared)
    }
}

/// Says what is being done, unless that was `said` already.
pub fn say_what(number: u64, doing: &Doing, said: &mut Option<Activity>, events: &Arc<Events>) {
    let last = doing.last();
    if let Some(activity) = last.filter(|_| *said != last) {
        *said = last;
        let doing = activity.to_string();
        events(AgentEvent::Doing { checkpoint: number, doing }.into());
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        let (done, woken) = &*self.0;
        *done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        woken.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doing::{self, Thing};
    use std::sync::mpsc::channel;

    #[test]
    fn going_from_one_to_the_next_is_progress() {
        let (told, hear) = channel();
        let events: Arc<Events> = Arc::new(move |event| {
            // The test may have ended.
            let _ = told.send(event);
        });
        doing::begin("reading", Thing::Process(1));
        let reports = Reports::begin(7, Arc::default(), Doing::own(), events);
        // It has looked at where this thread stands once it says what that is doing.
        let first = hear.recv_timeout(REPORT * 5).unwrap();
        let doing = AgentEvent::Doing { checkpoint: 7, doing: "reading process 1".into() };
        assert_eq!(first, doing.into());
        let before = Doing::own().begun();
        doing::begin("reading", Thing::Process(2));
        let moved = loop {
            let event = hear.recv_timeout(REPORT * 5).unwrap();
            let is_wanted =
                event == AgentEvent::Progress { checkpoint: 7, bytes: before + 1 }.into();
            if is_wanted {
                break true;
            }
        };
        assert!(moved);
        drop(reports);
        doing::nothing();
    }
}
