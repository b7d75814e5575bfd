//! What drivers of nodes do alike in all simulations: what a machine offers, what its agent says first, and what it keeps.

use ckpt_node::{BatteryGuard, Kept, Node, Own};
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::agent::{FromAgent, HeldInstance, Holding, NodeProfile, Takes};
use protocol::cluster::image::Requirements;
use protocol::cluster::succession::Followed;
use protocol::cluster::{NodeName, VERSIONS};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use super::requirements;

/// Job, instance, checkpoint.
pub type ImageName = (String, InstanceId, CheckpointNumber);

/// A node that has just begun, without a battery.
pub fn new_node(name: NodeName, profile: NodeProfile, followed: Followed) -> Node {
    Node::new(Own { name, profile, battery: BatteryGuard::new(None), followed })
}

/// A machine like all others, with so many slots.
pub fn profile(slots: u32) -> NodeProfile {
    let at = |port: u16| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let Requirements { architecture, page_size, vdso, features, .. } = requirements();
    NodeProfile {
        address: at(7000),
        addresses: Vec::new(),
        slots,
        spare: false,
        cores: slots,
        speed: None,
        speed_all: None,
        capacity: None,
        speed_given: false,
        architecture,
        page_size,
        vdso,
        features,
        memory_top: 0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        memory: 1 << 30,
        kernel: "6".to_owned(),
        owner: None,
        takes: Takes::default(),
        allow_root: true,
        job_traffic: None,
        started_ms: 1,
    }
}

/// The first words of an agent, with the images that lie on its machine.
pub fn hello<'a>(
    followed: Followed,
    profile: NodeProfile,
    instances: Vec<HeldInstance>,
    images: impl Iterator<Item = &'a ImageName>,
) -> FromAgent {
    let mut holdings: BTreeMap<(String, InstanceId), Vec<CheckpointNumber>> = BTreeMap::new();
    for (job, instance, checkpoint) in images {
        holdings.entry((job.clone(), *instance)).or_default().push(*checkpoint);
    }
    let holdings = holdings
        .into_iter()
        .map(|((job, instance), checkpoints)| Holding { job, instance, checkpoints })
        .collect();
    let (version, term) = (VERSIONS, followed.term);
    let followed = (term > 0).then_some(followed);
    FromAgent::Hello { version, term, followed, profile, instances, holdings }
}

/// Whether an image stays: of another job, kept, newer than what is kept, or that of an instance which is being made or
/// ends.
pub fn stays(kept: &Kept, (job, instance, checkpoint): &ImageName) -> bool {
    let numbers = kept.images.get(instance).filter(|numbers| !numbers.is_empty());
    let counts = |numbers: &Vec<CheckpointNumber>| {
        numbers.contains(checkpoint) || numbers.iter().max().is_some_and(|max| checkpoint > max)
    };
    *job != kept.job
        || kept.passing.contains(instance)
        || numbers.map_or(kept.alive.contains_key(instance), counts)
}
