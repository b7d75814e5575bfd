//! Control groups (cgroups(7)) in which processes of a job are, apart from the job as a whole: a checkpoint names them, and a
//! restart has the processes enter those again that are within the job's own, or makes them first. Limits of a group are not
//! kept.

mod enter;
mod look;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use enter::{enter, has_entered, wanted};
pub use look::apart;

/// A group in which a process is and its job as a whole is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlGroup {
    /// The hierarchy as /proc/PID/cgroup names it: controllers of version 1, or `name=`; empty for version 2.
    pub hierarchy: String,
    /// Its path, from the job's own group on where it is within that.
    pub path: String,
    /// It is within the job's own group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub within: bool,
}

/// The group of a process in each hierarchy.
pub type Groups = BTreeMap<String, String>;

/// Of all groups that a process is in.
const MOST: usize = 64;

/// Those of a process; none where the kernel has no groups, or the process has ended.
pub fn of(pid: &str) -> Groups {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    parse(&text)
}

/// `4:memory:/user.slice`
fn parse(text: &str) -> Groups {
    let one = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    text.lines().take(MOST).filter_map(one).collect()
}

/// What follows the path of a group in that of one within it, with its slash.
fn below<'p>(path: &'p str, group: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(group.trim_end_matches('/'))?;
    (rest.len() > 1 && rest.starts_with('/')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions() {
        let groups = parse("5:cpu,cpuacct:/job\n1:name=systemd:/a:b\n0::/user.slice\n");
        let expected = [("", "/user.slice"), ("cpu,cpuacct", "/job"), ("name=systemd", "/a:b")];
        assert_eq!(groups, expected.map(|(name, path)| (name.into(), path.into())).into());
    }

    #[test]
    fn groups_within_others() {
        assert_eq!(below("/job/part", "/job"), Some("/part"));
        assert_eq!(below("/part", "/"), Some("/part"));
        assert_eq!(below("/job", "/job"), None);
        assert_eq!(below("/jobs", "/job"), None);
        assert_eq!(below("/", "/"), None);
    }
}
