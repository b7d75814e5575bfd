//! What is told of images.

use super::{AppState, Image};
use protocol::agent::{AgentEvent, CheckpointNumber, ImageSummary};
use protocol::cluster::agent::FromAgent;
use protocol::cluster::image::{Effort, Efforts, ImageFacts, ProcessFacts, Requirements, Unit};
use protocol::cluster::{InstanceKey, NodeName};

/// An image's facts: one daemon, which is the others' parent.
pub(super) fn facts(state: &AppState) -> ImageFacts {
    let daemon = state.pids.contains(&2);
    let process = |pid: i32| ProcessFacts {
        pid,
        parent: if pid == 2 { 1 } else { 2 },
        name: if pid == 2 { "daemon" } else { "rank" }.to_owned(),
        threads: 1,
        bytes: 1000,
    };
    let unit = |pid: i32| Unit {
        pids: vec![pid],
        bytes: 1000,
        load: u32::from(pid != 2),
        because: String::new(),
    };
    ImageFacts {
        // An image tells of a remote shell's first process, too.
        root: daemon.then_some(2),
        processes: state.pids.iter().map(|pid| process(*pid)).collect(),
        units: state.pids.iter().map(|pid| unit(*pid)).collect(),
        requirements: Requirements {
            architecture: "x86_64".to_owned(),
            page_size: 4096,
            vdso: "00".to_owned(),
            any_vdso: false,
            features: Vec::new(),
        },
        at_stake: Vec::new(),
        efforts: Some(efforts(state)),
    }
}

/// Ranks of three weights wait for each other asleep.
fn efforts(state: &AppState) -> Efforts {
    let at_ms = state.counter.saturating_mul(100);
    let effort = |pid: i32| {
        let part = match pid {
            2 => 0,
            pid if pid % 3 == 0 => 1,
            pid if pid % 3 == 1 => 2,
            _ => 4,
        };
        (pid, Effort { user_ms: at_ms * part / 4, ..Effort::default() })
    };
    let processes = state.pids.iter().map(|pid| effort(*pid)).collect();
    Efforts { at_ms, processes, idle_permille: None }
}

/// What is told once the copies have been made.
pub fn written(
    key: &InstanceKey,
    checkpoint: CheckpointNumber,
    image: &Image,
    holders: Vec<NodeName>,
) -> [FromAgent; 2] {
    let facts = image.facts.clone();
    [
        FromAgent::Image { key: key.clone(), checkpoint, facts, holders },
        FromAgent::Instance {
            key: key.clone(),
            event: AgentEvent::Written { checkpoint, summary: ImageSummary::default() },
        },
    ]
}
