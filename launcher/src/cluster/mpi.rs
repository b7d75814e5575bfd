//! What Open MPI's mpirun is told, so that its daemons start under the agents.

use crate::session::mpi::{find_program, is_mpirun};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Options by which a user names the hosts.
const HOST_OPTIONS: [&str; 5] = ["host", "H", "hostfile", "machinefile", "default-hostfile"];

/// Variables by which a user names the hosts.
const HOST_VARIABLES: [&str; 2] =
    ["OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_default_dash_host"];

/// Adds to the environment of Open MPI's mpirun what makes it start its daemons by `ckptd rsh`, on
/// the members of the cluster unless the user names hosts. What the user has set stays.
pub fn prepare(
    command: &[OsString],
    found: &Path,
    directory: &Path,
    nodes: &Value,
    environment: &mut Vec<(OsString, OsString)>,
) {
    let Some(program) = command.first() else { return };
    if !is_mpirun(program, found) {
        return;
    }
    let own = std::env::current_exe().unwrap_or_else(|_| "ckptd".into());
    let mut agent = own.into_os_string();
    agent.push(" rsh");
    let mut settings = vec![
        ("OMPI_MCA_plm_rsh_agent", agent),
        // mpirun starts all daemons itself: the others' machines need not find ckptd.
        ("OMPI_MCA_plm_rsh_no_tree_spawn", "1".into()),
        // A first connection after a move would go to where the peer was, with shared memory, too.
        ("OMPI_MCA_mpi_preconnect_mpi", "1".into()),
    ];
    let named = HOST_VARIABLES.iter().any(|name| environment.iter().any(|(set, _)| set == name));
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    if !named && !names_hosts(&command[1..], path.as_deref(), directory) {
        let hosts = hosts(nodes);
        if !hosts.is_empty() {
            settings.push(("OMPI_MCA_orte_default_dash_host", hosts.into()));
        }
    }
    for (name, value) in settings {
        if !environment.iter().any(|(set, _)| set == name) {
            environment.push((name.into(), value));
        }
    }
}

/// Whether options of mpirun name hosts; those behind the program that it is to run are the
/// program's own.
fn names_hosts(arguments: &[OsString], path: Option<&OsStr>, directory: &Path) -> bool {
    for argument in arguments {
        let text = argument.to_string_lossy();
        match text.strip_prefix('-') {
            Some(option) => {
                let option = option.strip_prefix('-').unwrap_or(option);
                if HOST_OPTIONS.contains(&option) {
                    return true;
                }
            }
            None if find_program(argument, path, directory).is_some() => return false,
            None => {}
        }
    }
    false
}

/// The members that take processes, as NAME:SLOTS,...
fn hosts(nodes: &Value) -> String {
    let Some(nodes) = nodes.as_array() else { return String::new() };
    let mut hosts = Vec::new();
    for node in nodes {
        let name = node.get("name").and_then(Value::as_str);
        let slots = node.get("slots").and_then(Value::as_u64).unwrap_or(0);
        let state = node.get("state").and_then(Value::as_str);
        if let (Some(name), 1.., Some("alive")) = (name, slots, state) {
            hosts.push(format!("{name}:{slots}"));
        }
    }
    hosts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(arguments: &[&str]) -> bool {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        names_hosts(&arguments, Some(OsStr::new("/bin:/usr/bin")), Path::new("/"))
    }

    #[test]
    fn hosts_that_the_user_names_are_left_alone() {
        assert!(named(&["-np", "4", "--host", "a,b", "sh"]));
        assert!(named(&["-H", "a", "sh"]));
        assert!(named(&["--hostfile", "hosts", "sh"]));
        assert!(!named(&["-np", "4", "sh", "--host", "a"]));
        assert!(!named(&["-np", "4"]));
    }

    #[test]
    fn members_become_hosts_with_slots() {
        let nodes = json!([
            {"name": "a", "slots": 2, "state": "alive"},
            {"name": "b", "slots": 0, "state": "alive"},
            {"name": "c", "slots": 4, "state": "gone"},
            {"name": "d", "slots": 1, "state": "alive"},
        ]);
        assert_eq!(hosts(&nodes), "a:2,d:1");
        assert_eq!(hosts(&Value::Null), "");
    }
}
