//! What tests of the cluster's state machine have in common: a job's program, and what its images say.

use protocol::cluster::image::{Efforts, ImageFacts, ProcessFacts, Requirements, Unit};
use protocol::launch::{LaunchSpec, StreamKind};

/// Of a program without arguments.
pub fn launch_spec(program: &str) -> LaunchSpec {
    LaunchSpec {
        program: vec![program.into()],
        environment: Vec::new(),
        working_directory: "/".into(),
        stdin: StreamKind::Pipe,
        stdout: StreamKind::Pipe,
        stderr: StreamKind::Pipe,
        window: None,
        termios: None,
    }
}

/// Of a machine like all others.
pub fn requirements() -> Requirements {
    Requirements {
        architecture: "x86_64".to_owned(),
        page_size: 4096,
        vdso: "00".to_owned(),
        any_vdso: false,
        features: Vec::new(),
        memory_top: 0,
    }
}

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
        efforts,
    }
}
