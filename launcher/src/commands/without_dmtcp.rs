//! Where DMTCP is left out (cargo feature `dmtcp`), as for phones, which there is no DMTCP for: what asks for it is told so.

use super::Context;
use crate::agent::StartAgent;
use crate::cli::{CoordinatorArguments, EngineSetting};
use crate::failure::Failure;
use crate::jobs::JobFolder;
use ckpt_agent::doctor::{Check, Report, State};
use coordinator::server::DmtcpOptions;

const MISSING: &str = "this ckptd is built without DMTCP, as those for phones are";

pub fn port(_: &Context, _: &CoordinatorArguments, port: u16) -> Result<DmtcpOptions, Failure> {
    Err(Failure::of(format!("speak DMTCP's protocol at port {port}"), MISSING))
}

pub fn examine() -> Report {
    let check = Check {
        name: "DMTCP",
        state: State::Missing,
        required: true,
        found: MISSING.into(),
        consequence: Some("no jobs with --engine dmtcp; leave it out".into()),
    };
    Report { able: false, checks: vec![check] }
}

/// None of its names is known.
pub fn called(start_agent: StartAgent) -> Result<u8, StartAgent> {
    Err(start_agent)
}

pub fn verify(job: &JobFolder, _only: Option<u64>, _json: bool) -> Result<u8, Failure> {
    Err(Failure::of(format!("verify {}", job.name()), MISSING))
}

pub fn unkept(_: &JobFolder) -> Option<String> {
    None
}

/// Refuses what can only be done with checkpoints of the native engine.
pub fn refuse(job: &JobFolder, what: &str) -> Result<(), Failure> {
    match job.record().settings.engine {
        EngineSetting::Native => Ok(()),
        EngineSetting::Dmtcp => Err(Failure::of(format!("{what} {}", job.name()), MISSING)),
    }
}

pub mod engine {
    use super::{Context, Failure, JobFolder, MISSING};
    use crate::cli::{RestartArguments, RunArguments};
    use protocol::agent::CommitRecord;

    pub fn run(_: &Context, arguments: RunArguments) -> Result<u8, Failure> {
        let name = arguments.command.first().cloned().unwrap_or_default();
        Err(Failure::of(format!("run {} with DMTCP", name.to_string_lossy()), MISSING))
    }

    pub fn restart(
        _: &Context,
        job: &JobFolder,
        record: &CommitRecord,
        _: &RestartArguments,
    ) -> Result<u8, Failure> {
        let what = format!("restart {} from checkpoint {}", job.name(), record.checkpoint);
        Err(Failure::of(what, MISSING))
    }
}
