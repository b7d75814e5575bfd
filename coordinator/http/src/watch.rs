//! Looks at the cluster: once in a while as long as somebody watches, and when somebody asks.

use crate::ask::{AskError, Coordinator, LogPart};
use crate::history::History;
use crate::limits;
use crate::metrics::Metrics;
use crate::orders::Order;
use crate::role::{Role, Sight};
use crate::view::{self, Listings};
use bytes::Bytes;
use coordinator::server::LOG;
use coordinator::{Followed, Follower};
use hyper::StatusCode;
use protocol::clock::wall_ms;
use protocol::cluster::client::Ask;
use protocol::room::Room;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, MissedTickBehavior};

/// See the module.
#[derive(Debug)]
pub struct Watch {
    state: PathBuf,
    coordinator: Coordinator,
    seen: Mutex<Seen>,
    shown: watch::Sender<Bytes>,
}

/// What is known.
#[derive(Debug, Default)]
struct Seen {
    log: Option<Follower>,
    /// Why the log can't be read, and when that was found: what was read of it stays until it is read anew.
    log_failed: Option<(String, Instant)>,
    history: History,
    metrics: Metrics,
    /// All that had happened before is read: from now on it is counted.
    counts: bool,
    listings: Listings,
    looked: Option<Instant>,
}

impl Watch {
    /// At the coordinator of this folder.
    ///
    /// # Errors
    /// Where the folder can't be opened.
    pub fn new(state: &Path) -> io::Result<Self> {
        let coordinator = Coordinator::of(state)?;
        let (seen, shown) = (Mutex::default(), watch::Sender::new(Bytes::new()));
        Ok(Self { state: state.to_owned(), coordinator, seen, shown })
    }

    /// Looks once in a while, for ever, while there are streams.
    pub async fn run(&self) {
        let mut ticks = tokio::time::interval(limits::PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.shown.receiver_count() > 0 {
                let mut seen = self.seen.lock().await;
                let began = Instant::now();
                self.look(&mut seen).await;
                // Looking takes the coordinator a small part of its time, however large the cluster.
                ticks.reset_after(limits::PERIOD.max(began.elapsed() * limits::SHARE));
            } else {
                // What has happened is read in time, so that who comes does not wait for a long log.
                self.read_log(&mut *self.seen.lock().await).await;
            }
        }
    }

    /// What is told from now on. A slow reader leaves out what is old.
    pub fn stream(&self) -> watch::Receiver<Bytes> {
        self.shown.subscribe()
    }

    /// How many are told.
    pub fn streams(&self) -> usize {
        self.shown.receiver_count()
    }

    /// What somebody is told at the page, not older than a moment.
    pub async fn now(&self, sight: &Sight) -> Value {
        let mut seen = self.seen.lock().await;
        self.look_unless_fresh(&mut seen).await;
        view::view(&seen.listings, &seen.history, sight)
    }

    /// Gives an order of somebody at the page: status and text of the answer.
    pub async fn order(&self, order: &Order, sight: &Sight) -> (StatusCode, String) {
        order.give(&self.coordinator, &sight.name).await
    }

    /// The metrics; an error where the coordinator does not answer.
    pub async fn metrics(&self) -> Result<String, String> {
        let mut seen = self.seen.lock().await;
        self.look_unless_fresh(&mut seen).await;
        if let Some(error) = &seen.listings.error {
            return Err(error.clone());
        }
        let free = Room::of(&self.state).map(|room| room.free);
        let Seen { metrics, listings, .. } = &mut *seen;
        metrics.text(listings, free).map_err(|error| error.to_string())
    }

    /// The end of a job's log; None: whoever asks may not see that job, or there is none.
    pub async fn log(&self, job: &str, sight: &Sight) -> Option<Result<LogPart, AskError>> {
        let part = self.coordinator.log(job).await;
        // Looked at afterwards: a job that is there by that id now was the one that was meant, since no id is given again.
        if sight.user.is_some() && !self.is_seen(job, sight).await {
            return None;
        }
        Some(part)
    }

    /// Whether a job is one of those that somebody sees at this moment. Of a name or the beginning of an id it is not known
    /// whose job the coordinator would find.
    async fn is_seen(&self, job: &str, sight: &Sight) -> bool {
        let mut seen = self.seen.lock().await;
        self.look(&mut seen).await;
        if seen.listings.error.is_some() {
            return false;
        }
        let view = view::view(&seen.listings, &seen.history, sight);
        view["jobs"].as_array().is_some_and(|jobs| jobs.iter().any(|seen| seen["id"] == job))
    }

    async fn look_unless_fresh(&self, seen: &mut Seen) {
        if seen.looked.is_none_or(|looked| looked.elapsed() >= limits::PERIOD / 2) {
            self.look(seen).await;
        }
    }

    async fn look(&self, seen: &mut Seen) {
        self.read_log(seen).await;
        match self.ask().await {
            Ok(listings) => seen.listings = listings,
            Err(error) => {
                seen.listings.error = Some(format!("failed to ask the coordinator: {error}"));
                seen.listings.at = wall_ms();
            }
        }
        if let Some((error, _)) = &seen.log_failed {
            let error = format!("what has happened is not known: {error}");
            seen.listings.error.get_or_insert(error);
        }
        seen.looked = Some(Instant::now());
        if self.shown.receiver_count() > 0 {
            let sight = Sight::own(Role::Viewer);
            let view = view::view(&seen.listings, &seen.history, &sight).to_string();
            self.shown.send_replace(Bytes::from(format!("data: {view}\n\n")));
        }
    }

    async fn ask(&self) -> Result<Listings, AskError> {
        let nodes = self.coordinator.listing(&Ask::Nodes).await?;
        let jobs = self.coordinator.listing(&Ask::Status { job: None }).await?;
        let around = self.coordinator.listing(&Ask::Attention).await?;
        Ok(Listings { nodes, jobs, around, at: wall_ms(), error: None })
    }

    /// Reads what is new in the log.
    async fn read_log(&self, seen: &mut Seen) {
        if let Some((_, since)) = &seen.log_failed {
            if since.elapsed() < limits::READ_AGAIN {
                return;
            }
            (seen.log, seen.log_failed) = (None, None);
            (seen.history, seen.counts) = (History::default(), false);
        }
        while seen.log_failed.is_none() {
            let followed = match &mut seen.log {
                Some(log) => log.advance(),
                None => Follower::open(&self.state.join(LOG)).map(|log| {
                    seen.log = Some(log);
                    Followed::Entries(Vec::new())
                }),
            };
            match followed {
                Ok(Followed::Nothing) => {
                    seen.counts = true;
                    return;
                }
                Ok(Followed::Entries(entries)) => {
                    let counts = seen.counts;
                    let facts = entries.iter().flat_map(|entry| seen.history.apply(entry));
                    facts.filter(|_| counts).for_each(|fact| seen.metrics.count(&fact));
                }
                Ok(Followed::Anew) => (seen.history, seen.counts) = (History::default(), false),
                Err(error) => {
                    tracing::error!(
                        "the page reads the coordinator's log anew in a minute: {error}"
                    );
                    seen.log_failed = Some((error.to_string(), Instant::now()));
                }
            }
            // Others get their turn between two pieces of a long log.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::Journal;
    use coordinator::cluster::ClusterEntry;

    #[tokio::test]
    async fn only_what_happens_from_the_start_on_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let node = |name: &str| name.parse().unwrap();
        let gone = |name, at_ms| ClusterEntry::NodeGone { node: node(name), at_ms };
        let first = ClusterEntry::Opened { format: 1 };
        let (mut journal, _) = Journal::open(&dir.path().join(LOG), first).unwrap();
        journal.append(&gone("a", 1)).unwrap();
        let watch = Watch::new(dir.path()).unwrap();
        let counted = async || {
            let mut seen = watch.seen.lock().await;
            watch.read_log(&mut seen).await;
            let text = seen.metrics.text(&Listings::default(), None).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("ckptd_node_losses_total "));
            line.unwrap().to_owned()
        };
        assert_eq!(counted().await, "0", "before the start");
        journal.append(&gone("b", 2)).unwrap();
        assert_eq!(counted().await, "1");
        assert_eq!(counted().await, "1", "counted once");
        assert_eq!(watch.seen.lock().await.history.gone("a").collect::<Vec<_>>(), [1]);
    }
}
