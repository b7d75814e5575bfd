//! What launchers of MPI jobs are told, so that their daemons start under the agents.

use super::group::divide;
use super::hosts::{Host, hosts, with_slots};
use super::separate::set;
use super::{Found, GroupError, RunTime, Setting, Sharing, find_program};
use protocol::cluster::settings::JobSettings;
use protocol::launch::GivenFile;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Adds to the environment of a launcher, or to its options, what makes it start its daemons by `ckptd rsh`, on the members
/// of the cluster unless the user names hosts. What the user has set stays.
///
/// # Errors
/// Where ranks are to be grouped and can't be.
pub fn launch(
    launcher: &Found,
    command: &mut Vec<OsString>,
    directory: &Path,
    (nodes, settings): (&Value, &JobSettings),
    sharing: Sharing,
    environment: &mut Vec<(OsString, OsString)>,
) -> Result<(), GroupError> {
    sharing.tell(environment);
    let in_slurm = leave_slurm(environment);
    let profile = launcher.run_time.profile();
    let by_variable = names_by_variable(launcher.run_time, environment);
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    let arguments = command.get(1..).unwrap_or_default();
    let by_option = names_hosts(arguments, profile.host_options, path.as_deref(), directory);
    let hosts = match sharing {
        Sharing::Groups(_) if by_variable || by_option => return Err(GroupError::Hosts),
        Sharing::Groups(size) => divide(&hosts(nodes, settings), size)?,
        _ if by_variable || by_option => Vec::new(),
        _ => hosts(nodes, settings),
    };
    if !hosts.is_empty() {
        name_hosts(launcher.run_time, &hosts, command, environment);
    }
    set_daemons(launcher.run_time, in_slurm, environment);
    if in_slurm {
        set_fixed(profile.hosts_not_by_slurm, environment);
    }
    Ok(())
}

/// The same for what is no launcher but may call one, as a script does: whichever it calls, its daemons start by `ckptd rsh`.
/// In an allocation of Slurm, launchers find the hosts there, which are the members. Else Open MPI 4 is told of them in the
/// environment, and the others by files that the job is given.
pub fn launch_within(
    nodes: &Value,
    settings: &JobSettings,
    environment: &mut Vec<(OsString, OsString)>,
) -> Vec<GivenFile> {
    Sharing::Apart.tell(environment);
    let in_slurm = leave_slurm(environment);
    let hosts = hosts(nodes, settings);
    let mut files = Vec::new();
    if !in_slurm && !hosts.is_empty() {
        if !names_by_variable(RunTime::OpenMpi4, environment) {
            name_default_hosts(with_slots(&hosts), environment);
        }
        files = host_files(&hosts, environment);
    }
    for run_time in RunTime::ALL {
        set_daemons(run_time, in_slurm, environment);
    }
    files
}

/// Lists of hosts for launchers that read them from files alone, unless the user names some. Those who call such a launcher with
/// hosts of their own are heeded: the files are what it takes by default.
fn host_files(hosts: &[Host], environment: &[(OsString, OsString)]) -> Vec<GivenFile> {
    let lines = |between: &str| -> String {
        hosts.iter().map(|host| format!("{}{between}{}\n", host.name, host.slots)).collect()
    };
    let given = |name: &str, between: &str, run_times: &[(RunTime, &str)]| {
        let free = run_times.iter().filter(|(of, _)| !names_by_variable(*of, environment));
        let variables = free.map(|(_, variable)| (*variable).to_owned()).collect();
        GivenFile { name: name.into(), content: lines(between), variables }
    };
    let prrte = [(RunTime::OpenMpi5, "PRTE_MCA_prte_default_hostfile")];
    let hydra = [(RunTime::Mpich, "HYDRA_HOST_FILE"), (RunTime::IntelMpi, "I_MPI_HYDRA_HOST_FILE")];
    let files =
        [given("ckptd-hosts-prrte", " slots=", &prrte), given("ckptd-hosts-hydra", ":", &hydra)];
    files.into_iter().filter(|file| !file.variables.is_empty()).collect()
}

/// Whether the user names hosts in the environment.
fn names_by_variable(run_time: RunTime, environment: &[(OsString, OsString)]) -> bool {
    let variables = run_time.profile().host_variables;
    variables.iter().any(|name| environment.iter().any(|(set, _)| set == name))
}

/// Whether this is in an allocation of Slurm; what that tells launchers by itself is forgotten.
fn leave_slurm(environment: &mut Vec<(OsString, OsString)>) -> bool {
    let in_slurm = environment.iter().any(|(name, _)| name == "SLURM_JOB_ID");
    if in_slurm {
        forget_slurm(environment);
    }
    in_slurm
}

/// Tells a run time where its daemons start, and how.
fn set_daemons(run_time: RunTime, in_slurm: bool, environment: &mut Vec<(OsString, OsString)>) {
    let own = std::env::current_exe().unwrap_or_else(|_| "ckptd".into()).into_os_string();
    let told = match run_time {
        RunTime::OpenMpi4 => open_mpi_4(own),
        RunTime::OpenMpi5 => open_mpi_5(own),
        RunTime::Mpich => hydra(&MPICH, own),
        RunTime::IntelMpi => hydra(&INTEL, own),
    };
    set(told.into_iter(), environment);
    if in_slurm {
        set_fixed(run_time.profile().daemons_not_by_slurm, environment);
    }
}

fn set_fixed(settings: &[Setting], environment: &mut Vec<(OsString, OsString)>) {
    set(settings.iter().map(|(name, value)| (*name, value.into())), environment);
}

/// Tells a run time the hosts, in its environment where it reads them there, else by options of its launcher.
fn name_hosts(
    run_time: RunTime,
    hosts: &[Host],
    command: &mut Vec<OsString>,
    environment: &mut Vec<(OsString, OsString)>,
) {
    let hosts = with_slots(hosts);
    match run_time {
        RunTime::OpenMpi4 => name_default_hosts(hosts, environment),
        // PRRTE reads none from a variable: prte_default_dash_host is taken from files alone, seen with 5.0.11. Each of
        // several programs, between which a colon stands, has hosts of its own.
        RunTime::OpenMpi5 => {
            let starts = (1..command.len()).rev().filter(|at| command[at - 1] == ":");
            let starts: Vec<usize> = starts.chain([1]).collect();
            for at in starts {
                command.splice(at..at, ["--host".into(), hosts.clone()]);
            }
        }
        RunTime::Mpich | RunTime::IntelMpi => {
            command.splice(1..1, ["-hosts".into(), hosts]);
        }
    }
}

/// The hosts of every launcher of Open MPI 4 that is told no others.
fn name_default_hosts(hosts: OsString, environment: &mut Vec<(OsString, OsString)>) {
    set(std::iter::once(("OMPI_MCA_orte_default_dash_host", hosts)), environment);
}

/// Newer Slurms tell every hydra of an allocation to start its daemons by srun, and modules of a site tell Open MPI: they would
/// start behind ckptd's back. That is nothing that the user has set.
fn forget_slurm(environment: &mut Vec<(OsString, OsString)>) {
    const TOLD: [&str; 8] = [
        "OMPI_MCA_plm",
        "PRTE_MCA_plm",
        "HYDRA_BOOTSTRAP",
        "HYDRA_LAUNCHER",
        "HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
        "HYDRA_LAUNCHER_EXTRA_ARGS",
        "I_MPI_HYDRA_BOOTSTRAP",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
    ];
    environment.retain(|(name, value)| {
        let value = value.to_string_lossy();
        let by_slurm = value == "slurm" || value.contains("--external-launcher");
        !(by_slurm && TOLD.iter().any(|told| name == told))
    });
}

/// Variables that are to be set.
type Told = Vec<(&'static str, OsString)>;

fn remote_shell(mut own: OsString) -> OsString {
    own.push(" rsh");
    own
}

fn open_mpi_4(own: OsString) -> Told {
    vec![
        ("OMPI_MCA_plm_rsh_agent", remote_shell(own)),
        // mpirun starts all daemons itself: the others' machines need not find ckptd.
        ("OMPI_MCA_plm_rsh_no_tree_spawn", "1".into()),
        preconnect(),
    ]
}

/// A first connection after a move would go to where the peer was, with shared memory, too.
fn preconnect() -> (&'static str, OsString) {
    ("OMPI_MCA_mpi_preconnect_mpi", "1".into())
}

/// The same things by other names: its daemons are PRRTE's.
fn open_mpi_5(own: OsString) -> Told {
    vec![
        ("PRTE_MCA_plm_ssh_agent", remote_shell(own)),
        ("PRTE_MCA_plm_ssh_no_tree_spawn", "1".into()),
        preconnect(),
    ]
}

/// What MPICH's hydra is told by, and Intel's: the way, the program, and its first argument.
type Names = [&'static str; 3];
const MPICH: Names = ["HYDRA_LAUNCHER", "HYDRA_LAUNCHER_EXEC", "HYDRA_LAUNCHER_EXTRA_ARGS"];
const INTEL: Names = [
    "I_MPI_HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
];

fn hydra(names: &Names, own: OsString) -> Told {
    let [way, program, argument] = *names;
    // Its way with rsh: with ssh it would add an option.
    vec![(way, "rsh".into()), (program, own), (argument, "rsh".into())]
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
                let option = option.split('=').next().unwrap_or(option);
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(arguments: &[&str]) -> bool {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let path = OsStr::new("/bin:/usr/bin");
        let options = RunTime::OpenMpi4.profile().host_options;
        names_hosts(&arguments, options, Some(path), Path::new("/"))
    }

    #[test]
    fn hosts_that_the_user_names_are_left_alone() {
        assert!(named(&["-np", "4", "--host", "a,b", "sh"]));
        assert!(named(&["-H", "a", "sh"]));
        assert!(named(&["--hostfile", "hosts", "sh"]));
        assert!(!named(&["-np", "4", "sh", "--host", "a"]));
        assert!(!named(&["-np", "4"]));
    }

    /// Command and environment as they are changed.
    fn told(run_time: RunTime, arguments: &[&str]) -> (Vec<OsString>, Vec<(OsString, OsString)>) {
        let nodes = json!([{"name": "a", "slots": 2, "state": "alive", "trust": "root"}]);
        let mut command: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let (mut environment, settings) = (Vec::new(), JobSettings::default());
        let launcher = Found { run_time, answer: String::new() };
        let (root, told) = (Path::new("/"), (&nodes, &settings));
        launch(&launcher, &mut command, root, told, Sharing::Apart, &mut environment).unwrap();
        (command, environment)
    }

    #[test]
    fn scripts_find_hosts_in_files_unless_the_user_names_some() {
        let nodes = json!([
            {"name": "a", "slots": 2, "state": "alive", "trust": "root"},
            {"name": "b", "slots": 1, "state": "alive", "trust": "root"},
        ]);
        let within = |set: &[&str]| {
            let set = set.iter().map(|name| (OsString::from(name), OsString::from("own")));
            launch_within(&nodes, &JobSettings::default(), &mut set.collect())
        };
        let files = within(&[]);
        assert!(files.iter().all(GivenFile::is_sound));
        let contents: Vec<&str> = files.iter().map(|file| file.content.as_str()).collect();
        assert_eq!(contents, ["a slots=2\nb slots=1\n", "a:2\nb:1\n"]);
        assert_eq!(files[0].variables, ["PRTE_MCA_prte_default_hostfile"]);
        assert_eq!(files[1].variables, ["HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"]);
        let files = within(&["PRTE_MCA_prte_default_hostfile", "I_MPI_HYDRA_HOSTS_GROUP"]);
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].variables, ["HYDRA_HOST_FILE"]);
        // Slurm's own list is theirs there.
        assert!(within(&["SLURM_JOB_ID"]).is_empty());
    }

    #[test]
    fn groups_are_hosts() {
        let nodes = json!([{"name": "a", "slots": 3, "state": "alive", "trust": "root"}]);
        let told = |arguments: &[&str], environment: &mut Vec<(OsString, OsString)>| {
            let mut command: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let launcher = Found { run_time: RunTime::Mpich, answer: String::new() };
            let settings = JobSettings::default();
            let (told, groups) = ((&nodes, &settings), Sharing::Groups(2.try_into().unwrap()));
            launch(&launcher, &mut command, Path::new("/"), told, groups, environment)?;
            Ok(command)
        };
        let mut environment = Vec::new();
        let command = told(&["mpiexec", "-n", "3", "sh"], &mut environment).unwrap();
        assert_eq!(command, ["mpiexec", "-hosts", "a:2,a--2:1", "-n", "3", "sh"]);
        assert!(environment.contains(&("CKPTD_GROUP".into(), "2".into())));
        let by_user = told(&["mpiexec", "-hosts", "a", "sh"], &mut Vec::new());
        assert_eq!(by_user, Err(GroupError::Hosts));
        let by_variable = &mut vec![("HYDRA_HOST_FILE".into(), "hosts".into())];
        assert_eq!(told(&["mpiexec", "sh"], by_variable), Err(GroupError::Hosts));
    }

    #[test]
    fn hydra_is_given_hosts_and_a_remote_shell() {
        let (command, environment) = told(RunTime::Mpich, &["mpiexec.hydra", "-n", "2", "sh"]);
        assert_eq!(command, ["mpiexec.hydra", "-hosts", "a:2", "-n", "2", "sh"]);
        assert_eq!(environment[0], ("HYDRA_LAUNCHER".into(), "rsh".into()));
        assert_eq!(environment.len(), 3);
        let (command, _) = told(RunTime::Mpich, &["mpiexec.hydra", "-f", "hosts", "-n", "2", "sh"]);
        assert_eq!(command.len(), 6);
    }

    #[test]
    fn each_is_told_by_its_own_names() {
        let names = |run_time| -> Vec<String> {
            let (_, environment) = told(run_time, &["mpirun", "-n", "2", "sh"]);
            environment.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
        };
        for (run_time, prefix) in [
            (RunTime::OpenMpi4, "OMPI_MCA_orte_default_dash_host"),
            (RunTime::OpenMpi5, "PRTE_MCA_plm_ssh_agent"),
            (RunTime::IntelMpi, "I_MPI_HYDRA_BOOTSTRAP"),
        ] {
            assert!(names(run_time).iter().any(|name| name == prefix), "{prefix}");
        }
        let (command, environment) = told(RunTime::OpenMpi5, &["mpirun", "--host", "b", "sh"]);
        assert_eq!((command.len(), environment.len()), (4, 3));
        let (command, _) =
            told(RunTime::OpenMpi5, &["mpirun", "-n", "1", "sh", ":", "-n", "2", "sh"]);
        let expected =
            ["mpirun", "--host", "a:2", "-n", "1", "sh", ":", "--host", "a:2", "-n", "2", "sh"];
        assert_eq!(command, expected);
    }

    #[test]
    fn a_script_may_call_any_launcher() {
        let nodes = json!([{"name": "a", "slots": 2, "state": "alive", "trust": "root"}]);
        let of = |mut environment: Vec<(OsString, OsString)>| {
            launch_within(&nodes, &JobSettings::default(), &mut environment);
            move |name: &str| -> Option<String> {
                let found = environment.iter().find(|(set, _)| set == name)?;
                Some(found.1.to_string_lossy().into_owned())
            }
        };
        let plain = of(Vec::new());
        assert_eq!(plain("OMPI_MCA_orte_default_dash_host").as_deref(), Some("a:2"));
        for name in ["HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP"] {
            assert_eq!(plain(name).as_deref(), Some("rsh"), "{name}");
        }
        assert_eq!(plain("OMPI_MCA_plm"), None);
        let in_slurm = of(vec![("SLURM_JOB_ID".into(), "7".into())]);
        assert_eq!(in_slurm("OMPI_MCA_orte_default_dash_host"), None);
        let way = [in_slurm("OMPI_MCA_plm"), in_slurm("PRTE_MCA_plm"), in_slurm("HYDRA_RMK")];
        assert_eq!(way, [Some("rsh".to_owned()), Some("ssh".to_owned()), None]);
        let by_site =
            of(vec![("SLURM_JOB_ID".into(), "7".into()), ("OMPI_MCA_plm".into(), "slurm".into())]);
        assert_eq!(by_site("OMPI_MCA_plm").as_deref(), Some("rsh"));
    }

    #[test]
    fn what_slurm_says_to_hydra_is_forgotten() {
        let set = |of: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            of.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let mut environment = set(&[
            ("SLURM_JOB_ID", "7"),
            ("I_MPI_HYDRA_BOOTSTRAP", "slurm"),
            ("HYDRA_LAUNCHER_EXTRA_ARGS", "--external-launcher"),
            ("HYDRA_LAUNCHER", "ssh"),
        ]);
        forget_slurm(&mut environment);
        assert_eq!(environment, set(&[("SLURM_JOB_ID", "7"), ("HYDRA_LAUNCHER", "ssh")]));
        let (mut command, mut elsewhere) =
            (vec!["mpiexec".into()], set(&[("HYDRA_LAUNCHER", "slurm")]));
        let launcher = Found { run_time: RunTime::Mpich, answer: String::new() };
        let (root, settings) = (Path::new("/"), JobSettings::default());
        let told = (&Value::Null, &settings);
        launch(&launcher, &mut command, root, told, Sharing::Apart, &mut elsewhere).unwrap();
        assert_eq!(elsewhere[0], ("HYDRA_LAUNCHER".into(), "slurm".into()));
    }
}
