//! This node's copy of the coordinator's folder, from which another coordinator can carry on.
//!
//! ```text
//! DIR/replica/cluster.log         the coordinator's log, byte by byte
//! DIR/replica/cluster.log.new     one that is to take its place once it is whole
//! DIR/replica/jobs/JOB/log        jobs' output, likewise
//! DIR/replica/members.json        small files of the coordinator's folder
//! DIR/replica/authority*.pem
//! DIR/replica/replica.json        whose copy it is; not there until it is whole
//! ```
//!
//! All of it is open to the agent's user alone. A thread of its own writes: a busy disk must not keep
//! the agent from its heartbeats.

mod folder;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use protocol::cluster::replica::{ReplicaOrder, ReplicaReport};
use protocol::cluster::succession::Copy;

use self::folder::Folder;

pub use self::folder::{LOG, job_log, jobs};

/// Orders that become durable together, at most.
const BATCH: usize = 64;

/// How long an agent that ends waits for what it was told before, at most.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Task {
    Order(ReplicaOrder, Vec<u8>),
    /// Say that everything before it is done.
    Settle(Sender<()>),
}

/// The way to the thread that writes.
#[derive(Debug, Clone)]
pub struct Replica {
    orders: Sender<Task>,
    folder: PathBuf,
}

impl Replica {
    /// The copy in that folder, which need not be there yet. `report` takes what is to be told to the
    /// coordinator.
    ///
    /// # Errors
    /// Where there can be no thread.
    pub fn start(
        folder: &Path,
        report: impl Fn(ReplicaReport) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (sender, orders) = channel();
        let place = folder.to_owned();
        std::thread::Builder::new()
            .name("replica".to_owned())
            .spawn(move || write(Folder::new(place), &orders, &report))?;
        Ok(Self { orders: sender, folder: folder.to_owned() })
    }

    /// Carries out an order, and reports.
    pub fn order(&self, order: ReplicaOrder, body: Vec<u8>) {
        // The thread ends with the agent alone.
        let _ = self.orders.send(Task::Order(order, body));
    }

    /// Waits until all orders so far are carried out.
    pub fn wait_until_done(&self) {
        let (done, settled) = channel();
        if self.orders.send(Task::Settle(done)).is_ok() {
            let _ = settled.recv_timeout(SETTLE_LIMIT);
        }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The copy, if it is whole.
    pub fn copy(&self) -> Option<Copy> {
        folder::look(&self.folder)
    }
}

fn write(mut folder: Folder, orders: &Receiver<Task>, report: &impl Fn(ReplicaReport)) {
    let mut broken = false;
    while let Ok(first) = orders.recv() {
        let batch = std::iter::once(first).chain(orders.try_iter().take(BATCH - 1));
        let mut done = None;
        let mut waiting = Vec::new();
        for task in batch {
            let (order, body) = match task {
                Task::Order(order, body) => (order, body),
                Task::Settle(done) => {
                    waiting.push(done);
                    continue;
                }
            };
            let asked = matches!(order, ReplicaOrder::Hold);
            if broken && !asked {
                continue;
            }
            match folder.carry_out(order, &body) {
                Ok(folder::Done::Held { log, jobs }) => {
                    (broken, done) = (false, None);
                    report(ReplicaReport::Held { log, jobs });
                }
                Ok(folder::Done::Number(number)) => done = Some(number),
                Ok(folder::Done::Dropped) => {
                    done = None;
                    tracing::info!("the copy of the coordinator's log is removed");
                }
                Err(error) => {
                    broken = true;
                    report(ReplicaReport::Failed { reason: error.to_string() });
                }
            }
        }
        if let Some(number) = done.filter(|_| !broken) {
            match folder.sync() {
                Ok(()) => report(ReplicaReport::Durable { number }),
                Err(error) => {
                    broken = true;
                    report(ReplicaReport::Failed { reason: error.to_string() });
                }
            }
        }
        // Who waited may have given up.
        for done in waiting {
            let _ = done.send(());
        }
    }
}

#[cfg(test)]
mod tests;
