//! Run times of MPI from the Python package index, each in an environment of its own.

use std::path::Path;

use crate::cluster::PATH;

/// Where tests/install puts them.
const FOLDER: &str = "/var/cache/ckptd-tests/mpi";

/// What PATH is after the `activate` of an environment; `None`: it is not installed.
pub fn path(package: &str) -> Option<String> {
    let programs = Path::new(FOLDER).join(package).join("bin");
    programs.join("python").exists().then(|| format!("{}:{PATH}", programs.display()))
}
