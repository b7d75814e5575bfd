//! Users of jobs, as this machine numbers them.

use std::path::PathBuf;

use ckpt_engine::UserOrder;

/// A user, as this machine numbers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Number.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Home directory.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

impl User {
    /// What the engine needs of it.
    #[must_use]
    pub fn order(&self) -> UserOrder {
        UserOrder { uid: self.uid, gid: self.gid, groups: self.groups.clone() }
    }
}
