//! A job's program, and what its images ask of a machine; for tests and examples.

use protocol::cluster::image::Requirements;
use protocol::launch::LaunchSpec;

/// Of a program without arguments.
pub fn launch_spec(program: &str) -> LaunchSpec {
    LaunchSpec::through_pipes(vec![program.into()], "/".into())
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
