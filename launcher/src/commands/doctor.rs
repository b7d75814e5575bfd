//! `ckptd doctor`.

use super::{Context, print, print_json};
use crate::cli::{EngineSetting, ListArguments};
use crate::failure::Failure;
use ckpt_agent::doctor::{self, Check, Report, State};
use std::ffi::OsStr;

/// Exit status where jobs cannot be run and checkpointed here.
const EXIT_UNABLE: u8 = 1;

/// Exit status 0 where this user can run, checkpoint and restart jobs on this machine.
pub fn perform(
    context: &Context,
    engine: EngineSetting,
    list: ListArguments,
) -> Result<u8, Failure> {
    let report = match engine {
        EngineSetting::Native => doctor::examine(context.state.path()),
        EngineSetting::Dmtcp => super::dmtcp::examine(),
    };
    if list.json {
        print_json(&report)?;
    } else {
        print(&describe(&report))?;
    }
    Ok(if report.able { 0 } else { EXIT_UNABLE })
}

/// What run time of MPI a launcher belongs to. Exit status 0 where that is known.
pub fn mpi(launcher: &OsStr, list: ListArguments) -> Result<u8, Failure> {
    let environment: Vec<_> = std::env::vars_os().collect();
    let report = crate::mpi::report::of(launcher, &environment);
    if list.json {
        print_json(&report)?;
    } else {
        print(&report.describe())?;
    }
    Ok(if report.known.is_some() { 0 } else { EXIT_UNABLE })
}

fn describe(report: &Report) -> String {
    let width = report.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text: String = report.checks.iter().map(|check| line(check, width)).collect();
    text.push_str(if report.able {
        "\njobs can be run, checkpointed and restarted on this machine\n"
    } else {
        "\njobs can't be run and checkpointed on this machine; see the lines marked MISSING\n"
    });
    text
}

fn line(check: &Check, width: usize) -> String {
    let state = match (check.state, check.required) {
        (State::Ok, _) => "ok",
        (State::Limited, _) => "limited",
        (State::Missing, false) => "missing",
        (State::Missing, true) => "MISSING",
    };
    let mut line = format!("{state:<8} {:<width$}  {}\n", check.name, check.found);
    if let Some(consequence) = &check.consequence {
        line += &format!("{:<8} {:<width$}  -> {consequence}\n", "", "");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_is_told_with_its_consequence() {
        let check = Check {
            name: "kcmp",
            state: State::Missing,
            required: true,
            found: "not permitted".into(),
            consequence: Some("nothing works".into()),
        };
        let report = Report { able: false, checks: vec![check] };
        let text = describe(&report);
        assert!(text.starts_with("MISSING  kcmp  not permitted\n"), "{text}");
        assert!(text.contains("-> nothing works\n") && text.contains("can't be run"), "{text}");
    }
}
