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
    /// Of what this counter counts, and of what a thread is doing. Without a thread for it nothing is reported.
    pub fn begin(number: u64, counter: Arc<AtomicU64>, doing: Doing, events: Arc<Events>) -> Self {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let own = shared.clone();
        let _ = std::thread::Builder::new().name("step-progress".into()).spawn(move || {
            let (done, woken) = &*own;
            let mut told = counter.load(Ordering::Relaxed);
            let mut said = None;
            let mut guard = done.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                let waited = woken.wait_timeout_while(guard, REPORT, |done| !*done);
                guard = waited.unwrap_or_else(PoisonError::into_inner).0;
                if *guard {
                    return;
                }
                say_what(number, &doing, &mut said, &events);
                let bytes = counter.load(Ordering::Relaxed);
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
