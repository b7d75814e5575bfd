//! What is damaged of an image, and whom that concerns: processes whose memory is whole can be restored without the
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use protocol::agent::CheckpointNumber;
use protocol::cluster::NodeName;
use protocol::cluster::agent::DamagedCopy;
use protocol::task;

use ckpt_store::Damage;

use super::arrival::Arrival;

/// Damage of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Harm {
    /// Processes whose memory it is in.
    pub processes: BTreeSet<i32>,
    /// Whether there is other damage.
    pub useless: bool,
    /// The first that was found, one line.
    pub reason: String,
}

impl Harm {
    /// Of which nothing is known but this.
    #[must_use]
    pub fn total(reason: String) -> Self {
        Self { processes: BTreeSet::new(), useless: true, reason }
    }

    /// Whether nothing is damaged but the memory of these.
    #[must_use]
    pub fn spares_others(&self, without: &BTreeSet<i32>) -> bool {
        !self.useless && self.processes.is_subset(without)
    }

    /// As the coordinator hears of it.
    #[must_use]
    pub fn at(self, node: NodeName) -> DamagedCopy {
        let Self { processes, useless, reason } = self;
        DamagedCopy { node, processes, useless, reason }
    }
}

/// Reads all of an image that lies here. None: it is whole, or nothing can be said of it.
pub async fn harm(folder: &Path, checkpoint: CheckpointNumber) -> Option<Harm> {
    let folder = folder.to_owned();
    let look = move || of_wounded(ckpt_store::wounded(&folder, checkpoint));
    task::spawn_blocking(look).await.ok().flatten()
}

/// The same of one that has come and has no name yet.
pub async fn harm_of(arrival: &Arrival) -> Option<Harm> {
    let (image, checkpoint) = (arrival.image(), arrival.checkpoint());
    let look = move || of_wounded(image.wounded(checkpoint));
    task::spawn_blocking(look).await.ok().flatten()
}

fn of_wounded(wounded: Result<BTreeMap<String, Damage>, Damage>) -> Option<Harm> {
    let wounded = match wounded {
        Ok(wounded) => wounded,
        // That may be a moment's.
        Err(Damage::Kernel { .. } | Damage::Sink { .. }) => return None,
        Err(damage) => return Some(Harm::total(damage.to_string())),
    };
    let reason = wounded.values().next()?.to_string();
    let processes: Vec<Option<i32>> = wounded.keys().map(|name| process_of(name)).collect();
    let useless = processes.contains(&None);
    Some(Harm { processes: processes.into_iter().flatten().collect(), useless, reason })
}

fn process_of(index: &str) -> Option<i32> {
    index.strip_prefix("process-")?.strip_suffix(".json")?.parse().ok()
}
