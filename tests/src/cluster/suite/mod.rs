//! The end-to-end tests of the cluster: what is done to it, and what must come out.

mod archives;
mod audit;
mod authority;
mod called;
mod capabilities;
mod commands;
mod damage;
mod discovery;
mod disks;
mod dmtcp;
mod drains;
mod fallback;
mod farms;
pub mod faults;
mod firewalls;
mod groups;
pub mod history;
mod images;
mod kept;
mod late;
mod leaving;
mod logins;
mod members;
mod moving;
mod open_mpi;
mod owners;
mod packaged;
mod page;
mod phones;
mod promtool;
mod recovery;
mod rows;
mod runtimes;
mod scripted;
mod sealed;
mod shells;
mod slurm;
mod slurm_ends;
mod slurm_packaged;
mod slurm_store;
mod speeds;
mod stage;
mod traffic;
mod tree;
mod upgrades;

use crate::job::Failure;

pub use runtimes::{lose_at, restart_at};
pub use stage::Stage;

/// One test.
pub struct Case {
    /// The name by which `target/debug/cluster` is asked for it.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&Stage) -> Result<(), Failure>,
}

/// All tests.
pub fn all() -> Vec<Case> {
    [
        open_mpi::CASES,
        groups::CASES,
        leaving::CASES,
        moving::CASES,
        drains::CASES,
        speeds::CASES,
        phones::CASES,
        rows::CASES,
        late::CASES,
        members::CASES,
        owners::CASES,
        capabilities::CASES,
        logins::CASES,
        audit::CASES,
        authority::CASES,
        commands::CASES,
        called::CASES,
        images::CASES,
        sealed::CASES,
        archives::CASES,
        kept::CASES,
        faults::CASES,
        farms::CASES,
        runtimes::CASES,
        packaged::CASES,
        scripted::CASES,
        slurm::CASES,
        slurm_ends::CASES,
        slurm_packaged::CASES,
        slurm_store::CASES,
        fallback::CASES,
        damage::CASES,
        shells::CASES,
        recovery::CASES,
        page::CASES,
        tree::CASES,
        upgrades::CASES,
        traffic::CASES,
        discovery::CASES,
        disks::CASES,
        firewalls::CASES,
        dmtcp::CASES,
    ]
    .into_iter()
    .flatten()
    .map(Case::copy)
    .collect()
}

/// How much of the machine a test leaves to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Company {
    /// It waits for events most of the time.
    Waits,
    /// Its ranks compute until the job ends or they are told to end.
    Computes,
    /// It measures speeds, or counts on cores that nobody else uses.
    Measures,
}

impl Company {
    /// All of them, in the order in which their tests run.
    pub const ALL: [Self; 3] = [Self::Waits, Self::Computes, Self::Measures];

    /// How many of such tests run side by side, each on a cluster of its own.
    pub fn lanes(self) -> usize {
        match self {
            Self::Waits => 3,
            Self::Computes | Self::Measures => 1,
        }
    }
}

/// Those that wait, of files whose other tests do not.
const WAITING: &[&str] = &[
    "agent-with-capabilities",
    "audit",
    "careless-end",
    "firewalls",
    "images-encrypted",
    "import-alone",
    "late-connections",
    "late-unanswered",
    "leave-copies",
    "listener-port-taken",
    "login",
    "login-ends",
    "no-rewire-listener",
    "output-meanwhile",
    "roles",
    "shell-to-lost",
    "shells-end",
    "shells-of-others",
    "shells-spread",
    "strangers",
    "traffic-datagrams",
    "traffic-placed",
    "tokens",
    "trust",
    "users",
];

/// Those that measure, of files whose other tests do not.
const MEASURING: &[&str] = &["cpu-baseline"];

/// How much of the machine a test leaves to others.
pub fn company(name: &str) -> Company {
    let one_of = |files: &[&[Case]]| files.iter().copied().flatten().any(|case| case.name == name);
    let waiting = [
        rows::CASES,
        tree::CASES,
        phones::CASES,
        commands::CASES,
        farms::CASES,
        images::CASES,
        discovery::CASES,
        dmtcp::CASES,
        slurm::CASES,
        slurm_ends::CASES,
        slurm_packaged::CASES,
        slurm_store::CASES,
    ];
    if MEASURING.contains(&name) || one_of(&[speeds::CASES]) {
        Company::Measures
    } else if WAITING.contains(&name) || one_of(&waiting) {
        Company::Waits
    } else {
        Company::Computes
    }
}

impl Case {
    fn copy(&self) -> Case {
        Case { name: self.name, about: self.about, run: self.run }
    }
}

/// Fails with a text unless something holds.
fn check(holds: bool, text: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure(text())) }
}
