//! What this machine can do for jobs, each thing really tried, and what each missing one costs.

mod kernel;
mod machine;
mod policy;

use std::path::Path;

use serde::Serialize;

/// How a feature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// Jobs run and are checkpointed, with a cost.
    Limited,
    /// Not there.
    Missing,
}

/// One feature of the machine.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// Its name, which stays.
    pub name: &'static str,
    /// How it is.
    pub state: State,
    /// Whether no job can be run and checkpointed without it.
    pub required: bool,
    /// What was found.
    pub found: String,
    /// What it costs that it is so, and the way out; none where the state is [`State::Ok`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consequence: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, required: false, found: found.into(), consequence: None }
    }

    fn limited(name: &'static str, found: impl Into<String>, consequence: &str) -> Self {
        let consequence = Some(consequence.to_owned());
        Self { name, state: State::Limited, required: false, found: found.into(), consequence }
    }

    fn missing(name: &'static str, found: impl Into<String>, consequence: &str) -> Self {
        Self { state: State::Missing, ..Self::limited(name, found, consequence) }
    }

    /// Of a probe without which nothing works.
    fn required(
        name: &'static str,
        probe: Result<(), impl std::error::Error>,
        consequence: &str,
    ) -> Self {
        Self { required: true, ..Self::wanted(name, probe, consequence) }
    }

    /// Of a probe without which something is worse.
    fn wanted(
        name: &'static str,
        probe: Result<(), impl std::error::Error>,
        consequence: &str,
    ) -> Self {
        match probe {
            Ok(()) => Self::ok(name, "works"),
            Err(reason) => Self::missing(name, reason.to_string(), consequence),
        }
    }
}

/// What a machine offers.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Whether jobs can be run, checkpointed and restarted here by this user.
    pub able: bool,
    /// All that was looked at.
    pub checks: Vec<Check>,
}

/// Looks at everything. The caller should have no other threads: probes are forked children.
/// `jobs` is where jobs are to be kept; it need not exist.
pub fn examine(jobs: &Path) -> Report {
    let mut checks = machine::checks(jobs);
    checks.extend(policy::checks());
    checks.extend(kernel::checks());
    let able = checks.iter().all(|check| !check.required || check.state != State::Missing);
    Report { able, checks }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lack_has_a_consequence_and_names_are_unique() {
        let report = examine(Path::new("/tmp/not/there"));
        let mut names: Vec<_> = report.checks.iter().map(|check| check.name).collect();
        for check in &report.checks {
            assert_eq!(check.consequence.is_none(), check.state == State::Ok, "{check:?}");
            assert!(!check.found.is_empty());
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count > 20);
    }
}
