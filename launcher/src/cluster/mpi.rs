//! What launchers of MPI jobs are told, so that their daemons start under the agents.

use crate::session::mpi::{Make, find_program, make};
use protocol::cluster::settings::{JobSettings, Traffic, Trust};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Options and variables by which a user names the hosts.
struct Naming {
    options: &'static [&'static str],
    variables: &'static [&'static str],
}

const OPEN_MPI: Naming = Naming {
    options: &["host", "H", "hostfile", "machinefile", "default-hostfile"],
    variables: &["OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_default_dash_host"],
};

const MPICH: Naming = Naming {
    options: &["f", "hostfile", "machinefile", "machine", "machines", "host", "hosts"],
    variables: &["HYDRA_HOST_FILE"],
};

/// Adds to the environment of Open MPI's mpirun and MPICH's mpiexec, or to their options, what makes them
/// start their daemons by `ckptd rsh`, on the members of the cluster unless the user names hosts. What
/// the user has set stays.
pub fn prepare(
    command: &mut Vec<OsString>,
    found: &Path,
    directory: &Path,
    nodes: &Value,
    settings: &JobSettings,
    environment: &mut Vec<(OsString, OsString)>,
) {
    let Some(made) = command.first().and_then(|program| make(program, found)) else { return };
    let own = std::env::current_exe().unwrap_or_else(|_| "ckptd".into()).into_os_string();
    let naming = match made {
        Make::OpenMpi => OPEN_MPI,
        Make::Mpich => MPICH,
    };
    let by_variable =
        naming.variables.iter().any(|name| environment.iter().any(|(set, _)| set == name));
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    let by_option = names_hosts(&command[1..], naming.options, path.as_deref(), directory);
    let hosts = if by_variable || by_option { String::new() } else { hosts(nodes, settings) };
    let mut settings: Vec<(&str, OsString)> = Vec::new();
    match made {
        Make::OpenMpi => {
            let mut agent = own;
            agent.push(" rsh");
            settings.push(("OMPI_MCA_plm_rsh_agent", agent));
            // mpirun starts all daemons itself: the others' machines need not find ckptd.
            settings.push(("OMPI_MCA_plm_rsh_no_tree_spawn", "1".into()));
            // A first connection after a move would go to where the peer was, with shared memory, too.
            settings.push(("OMPI_MCA_mpi_preconnect_mpi", "1".into()));
            if !hosts.is_empty() {
                settings.push(("OMPI_MCA_orte_default_dash_host", hosts.into()));
            }
        }
        Make::Mpich => {
            // Its way with rsh: with ssh it would add an option.
            settings.push(("HYDRA_LAUNCHER", "rsh".into()));
            settings.push(("HYDRA_LAUNCHER_EXEC", own));
            settings.push(("HYDRA_LAUNCHER_EXTRA_ARGS", "rsh".into()));
            if !hosts.is_empty() {
                // No variable holds them.
                command.splice(1..1, ["-hosts".into(), hosts.into()]);
            }
        }
    }
    for (name, value) in settings {
        if !environment.iter().any(|(set, _)| set == name) {
            environment.push((name.into(), value));
        }
    }
}

/// Whether one of these options names hosts; those behind the program that is to be run are the
/// program's own.
fn names_hosts(
    arguments: &[OsString],
    options: &[&str],
    path: Option<&OsStr>,
    directory: &Path,
) -> bool {
    for argument in arguments {
        let text = argument.to_string_lossy();
        match text.strip_prefix('-') {
            Some(option) => {
                let option = option.strip_prefix('-').unwrap_or(option);
                if options.contains(&option) {
                    return true;
                }
            }
            None if find_program(argument, path, directory).is_some() => return false,
            None => {}
        }
    }
    false
}

/// The members that take processes of a job with such settings, as NAME:SLOTS,...
fn hosts(nodes: &Value, settings: &JobSettings) -> String {
    let Some(nodes) = nodes.as_array() else { return String::new() };
    let mut hosts = Vec::new();
    for node in nodes {
        let name = node.get("name").and_then(Value::as_str);
        let slots = node.get("slots").and_then(Value::as_u64).unwrap_or(0);
        let state = node.get("state").and_then(Value::as_str);
        let least =
            node.get("trust").and_then(|least| protocol::json::of_value::<Trust>(least).ok());
        let of_node = node.get("job_traffic");
        let traffic = of_node.and_then(|how| protocol::json::of_value::<Traffic>(how).ok());
        let takes = least.is_some_and(|least| least <= settings.trust)
            && (settings.traffic == Traffic::Clear || traffic == Some(Traffic::Encrypted));
        if let (Some(name), 1.., Some("alive"), true) = (name, slots, state, takes) {
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
        let path = OsStr::new("/bin:/usr/bin");
        names_hosts(&arguments, OPEN_MPI.options, Some(path), Path::new("/"))
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
    fn hydra_is_given_hosts_and_a_remote_shell() {
        let dir = tempfile::tempdir().unwrap();
        let found = dir.path().join("mpiexec.hydra");
        std::fs::write(&found, "").unwrap();
        let nodes = json!([{"name": "a", "slots": 2, "state": "alive", "trust": "root"}]);
        let told = |arguments: &[&str]| {
            let mut command: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let mut environment = Vec::new();
            prepare(
                &mut command,
                &found,
                Path::new("/"),
                &nodes,
                &JobSettings::default(),
                &mut environment,
            );
            (command, environment)
        };
        let (command, environment) = told(&["mpiexec.hydra", "-n", "2", "sh"]);
        assert_eq!(command, ["mpiexec.hydra", "-hosts", "a:2", "-n", "2", "sh"]);
        assert_eq!(environment[0], ("HYDRA_LAUNCHER".into(), "rsh".into()));
        assert_eq!(environment.len(), 3);
        let (command, _) = told(&["mpiexec.hydra", "-f", "hosts", "-n", "2", "sh"]);
        assert_eq!(command.len(), 6);
    }

    #[test]
    fn members_become_hosts_with_slots() {
        let nodes = json!([
            {"name": "a", "slots": 2, "state": "alive", "trust": "own"},
            {"name": "b", "slots": 0, "state": "alive", "trust": "root"},
            {"name": "c", "slots": 4, "state": "gone", "trust": "root"},
            {"name": "d", "slots": 1, "state": "alive", "trust": "root", "job_traffic": "encrypted"},
            {"name": "e", "slots": 1, "state": "alive", "trust": "any"},
            {"name": "f", "slots": 1, "state": "alive", "trust": null},
        ]);
        let of = |trust, traffic| JobSettings { trust, traffic, ..JobSettings::default() };
        let clear = |trust| hosts(&nodes, &of(trust, Traffic::Clear));
        assert_eq!(clear(Trust::Own), "a:2");
        assert_eq!(clear(Trust::Root), "a:2,d:1");
        assert_eq!(clear(Trust::Any), "a:2,d:1,e:1");
        assert_eq!(hosts(&nodes, &of(Trust::Any, Traffic::Encrypted)), "d:1");
        assert_eq!(hosts(&Value::Null, &of(Trust::Any, Traffic::Clear)), "");
    }
}
