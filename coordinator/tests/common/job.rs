//! A job's program, and what its images ask of a machine; for tests and examples.

use protocol::cluster::image::Requirements;
use protocol::launch::{External, LaunchSpec, StreamKind};

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
        kept: protocol::launch::Kept::default(),
        external: External::default(),
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
