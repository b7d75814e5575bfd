//! What simulations of the cluster's state machine have in common: a job's program, what its images say, and what drivers
//! of the real nodes do alike.

mod console;
mod job;
mod node;

pub use console::Console;
pub use job::{launch_spec, requirements};
pub use node::{ImageName, hello, new_node, profile, stays};
use protocol::cluster::image::{Efforts, ImageFacts, ProcessFacts, Unit};

/// An image's facts: one daemon (2), which is the others' parent.
pub fn image_facts(pids: &[i32], root: bool, efforts: Option<Efforts>) -> ImageFacts {
    let process = |pid: &i32| ProcessFacts {
        pid: *pid,
        parent: if *pid == 2 { 1 } else { 2 },
        name: if *pid == 2 { "daemon" } else { "rank" }.to_owned(),
        threads: 1,
        bytes: 1000,
    };
    let unit = |pid: &i32| Unit {
        pids: vec![*pid],
        bytes: 1000,
        load: u32::from(*pid != 2),
        because: String::new(),
    };
    ImageFacts {
        root: root.then_some(2),
        processes: pids.iter().map(process).collect(),
        units: pids.iter().map(unit).collect(),
        requirements: requirements(),
        at_stake: Vec::new(),
        digest: String::new(),
        efforts,
    }
}
