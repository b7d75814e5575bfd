//! The end-to-end tests of the cluster: what is done to it, and what must come out.

mod archives;
mod audit;
mod authority;
mod called;
mod capabilities;
mod commands;
mod damage;
mod discovery;
mod dmtcp;
mod drains;
mod fallback;
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
mod recovery;
mod rows;
mod runtimes;
mod sealed;
mod shells;
mod slurm;
mod slurm_ends;
mod slurm_store;
mod speeds;
mod stage;
mod traffic;
mod tree;

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
        runtimes::CASES,
        packaged::CASES,
        slurm::CASES,
        slurm_ends::CASES,
        slurm_store::CASES,
        fallback::CASES,
        damage::CASES,
        shells::CASES,
        recovery::CASES,
        page::CASES,
        tree::CASES,
        traffic::CASES,
        discovery::CASES,
        firewalls::CASES,
        dmtcp::CASES,
    ]
    .into_iter()
    .flatten()
    .map(Case::copy)
    .collect()
}

/// Those of files whose other tests measure, or keep all cores busy by ranks that compute until they are told to end.
const LIGHT: &[&str] = &[
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

/// Whether a test may run beside another one: it waits for events most of the time, and measures no speed.
pub fn light(name: &str) -> bool {
    let files = [
        rows::CASES,
        tree::CASES,
        phones::CASES,
        commands::CASES,
        images::CASES,
        discovery::CASES,
        dmtcp::CASES,
    ];
    LIGHT.contains(&name) || files.into_iter().flatten().any(|case| case.name == name)
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
