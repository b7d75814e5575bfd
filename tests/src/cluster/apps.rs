//! Machines where ckptd runs as an app of Android may: as its user, in its sandbox.

use std::path::Path;

use super::{Cluster, HOME, WORK};
use crate::build;
use crate::job::Failure;

/// What agents are told: that there are no namespaces, and that sockets are neither listed by the kernel nor in /proc/net, which no filter of
/// system calls can hide.
pub const ENVIRONMENT: [(&str, &str); 2] = [("CKPTD_NAMESPACES", "none"), ("CKPTD_SOCKETS", "own")];

/// The machine of the coordinator has no sandbox. What is started within stays within. The user's programs are this machine's, with the
/// GNU C library, which can do without what Android 15 forbids.
const SCRIPT: &str = "#!/bin/sh
there=${0%/*}
if [ \"$(id -u)\" != 0 ] || [ \"$(hostname)\" = node0 ]; then exec \"$there/ckptd.app\" \"$@\"; fi
exec \"$there/sandbox\" 15 glibc \"$there/ckptd.app\" \"$@\"
";

/// Puts ckptd where all nodes have it, and the sandbox around it. Nodes 1 to `agents` let an app write into their folders.
///
/// # Errors
/// When the sandbox cannot be built, or a file not be written.
pub fn share(ckptd: &Path, cluster: &Cluster, agents: usize) -> Result<(), Failure> {
    for number in 1..=agents {
        cluster.node(number).must_run(&["chmod", "777", HOME, WORK])?;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../launcher/tests/sandbox/sandbox.c");
    let folder = tempfile::tempdir().map_err(super::failure("make a folder"))?;
    let [sandbox, app] = ["sandbox", "ckptd.app"].map(|name| folder.path().join(name));
    build::compile("cc", &["-O1"], &[&source], &sandbox)
        .map_err(|error| Failure(error.to_string()))?;
    std::fs::copy(ckptd, &app).map_err(super::failure("copy ckptd"))?;
    for program in [&sandbox, &app] {
        cluster.share(program)?;
    }
    cluster.share_script("ckptd", SCRIPT).map(drop)
}
