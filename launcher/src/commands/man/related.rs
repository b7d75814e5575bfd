//! What belongs to a command: files that it reads or writes, commands that come before or after it, topics of the guide.

/// Kinds of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of jobs, on this machine or a cluster.
    Jobs,
    /// Of many tasks.
    Tasks,
    /// Of the coordinator's machine.
    Coordinator,
    /// Of a member.
    Member,
    /// Of neither.
    Other,
}

/// A file, and what it is.
type File = (&'static str, &'static str);

const JOBS: &[File] = &[
    (
        "~/.local/state/ckptd/NAME-N/",
        "A job of this machine (or below --dir, or $CKPTD_DIR): job.json is its record, log what it has written, log.times \
         when, packs and checkpoints its images, coordinator.log what ckptd has decided.",
    ),
    (
        "/run/ckptd/agent.sock",
        "The agent for all users of the machine: with it, jobs are the cluster's.",
    ),
];
const TASKS: &[File] = &[
    (
        "~/.local/state/ckptd/farms/NAME/",
        "A run (or below --dir, or $CKPTD_DIR): its tasks and what became of them, with which --resume goes on.",
    ),
    (
        "results/",
        "There, where --results names no other folder: output and errors of each task; results.jsonl has their ends.",
    ),
];
const COORDINATOR: &[File] = &[
    (
        "/var/lib/ckptd/coordinator/, ~/.local/state/ckptd/coordinator/",
        "The coordinator's folder, as a service of the machine or a user's: cluster.log is all that it knows, audit.log who \
         has ordered what, coordinator.sock where commands find it.",
    ),
    (
        "http.token, metrics.token, page-tokens.json",
        "There: by what its page and its metrics are seen; the last has hashes alone.",
    ),
    ("/etc/default/ckptd", "CKPTD_COORDINATOR_OPTIONS: options of the service."),
];
const MEMBER: &[File] = &[
    (
        "/var/lib/ckptd/agent/, ~/.local/state/ckptd/",
        "The agent's folder, as a service of the machine or a user's: images of the cluster's jobs, and the key by which \
         this machine is a member.",
    ),
    ("/run/ckptd/agent.sock", "Where the agent for all users of the machine listens."),
    ("/etc/default/ckptd", "CKPTD_AGENT_OPTIONS: options of the service."),
];
const OPTIONS: &[File] = &[
    ("/etc/ckptd.toml", "Options for the whole machine."),
    ("~/.config/ckptd.toml", "Options of a user."),
];

/// What is known of commands: kind, commands to see, topics.
const TABLE: &[(&str, Kind, &[&str], &[&str])] = &[
    (
        "run",
        Kind::Jobs,
        &["restart", "status", "logs", "attach", "stop"],
        &["one-machine", "mpi", "hooks"],
    ),
    ("slurm", Kind::Jobs, &["slurm-run", "run"], &["slurm"]),
    ("slurm-run", Kind::Jobs, &["run", "doctor"], &["slurm", "mpi"]),
    ("adopt", Kind::Jobs, &["run", "restart"], &["one-machine", "limits"]),
    ("checkpoint", Kind::Jobs, &["restart", "inspect", "verify"], &["one-machine"]),
    ("restart", Kind::Jobs, &["run", "status", "verify"], &["one-machine", "troubleshooting"]),
    ("stop", Kind::Jobs, &["restart", "rm"], &["one-machine"]),
    ("ls", Kind::Jobs, &["status", "rm"], &["one-machine"]),
    ("status", Kind::Jobs, &["top", "ls", "nodes"], &["one-machine", "operations"]),
    ("inspect", Kind::Jobs, &["verify", "status"], &["one-machine", "limits"]),
    ("verify", Kind::Jobs, &["inspect", "restart"], &["one-machine", "limits"]),
    ("gc", Kind::Jobs, &["rm", "verify"], &["one-machine"]),
    ("export", Kind::Jobs, &["import", "verify"], &["one-machine", "slurm"]),
    ("import", Kind::Jobs, &["export", "restart"], &["one-machine"]),
    ("rm", Kind::Jobs, &["ls", "gc", "stop"], &["one-machine", "operations"]),
    ("logs", Kind::Jobs, &["attach", "status"], &["one-machine"]),
    ("report", Kind::Jobs, &["status", "top"], &["watch"]),
    ("attach", Kind::Jobs, &["logs", "run"], &["one-machine"]),
    ("farm", Kind::Tasks, &["farm-run", "farm-submit", "run"], &["farm"]),
    (
        "coordinator",
        Kind::Coordinator,
        &["token", "page", "audit", "agent"],
        &["cluster", "operations", "watch"],
    ),
    ("token", Kind::Coordinator, &["coordinator", "agent"], &["cluster", "owners"]),
    ("page", Kind::Coordinator, &["coordinator", "report"], &["watch"]),
    ("audit", Kind::Coordinator, &["coordinator", "nodes"], &["operations", "owners"]),
    ("login", Kind::Member, &["logout", "run"], &["owners"]),
    ("logout", Kind::Member, &["login"], &["owners"]),
    ("agent", Kind::Member, &["coordinator", "token", "leave"], &["cluster", "machines"]),
    ("nodes", Kind::Member, &["top", "drain", "status"], &["cluster", "operations"]),
    ("top", Kind::Member, &["status", "nodes"], &["watch", "cluster"]),
    ("leave", Kind::Member, &["drain", "nodes"], &["cluster"]),
    ("drain", Kind::Member, &["uncordon", "leave", "nodes"], &["operations"]),
    ("uncordon", Kind::Member, &["drain", "nodes"], &["operations"]),
    ("rsh", Kind::Member, &["run", "doctor"], &["mpi"]),
    ("demo", Kind::Other, &["run", "top"], &["tutorial"]),
    ("config", Kind::Other, &["config-show", "doctor"], &["configuration"]),
    ("config-show", Kind::Other, &["doctor"], &["configuration"]),
    ("doctor", Kind::Other, &["run", "config-show"], &["machines", "limits", "mpi"]),
    ("completions", Kind::Other, &["man"], &["install"]),
    ("man", Kind::Other, &["completions", "help"], &["install"]),
    ("help", Kind::Other, &["man", "doctor"], &["faq", "troubleshooting"]),
];

fn known(
    page: &str,
) -> Option<&'static (&'static str, Kind, &'static [&'static str], &'static [&'static str])> {
    let name = page.strip_prefix("ckptd-").unwrap_or_default();
    let of = |name: &str| TABLE.iter().find(|(known, ..)| *known == name);
    // Those of commands below another one are its own.
    of(name).or_else(|| of(name.split('-').next().unwrap_or_default()))
}

/// Files of a command, by the name of its page; of all of ckptd for any other page.
pub fn files(page: &str) -> Vec<File> {
    let own: &[&[File]] = match known(page).map(|(_, kind, ..)| *kind) {
        Some(Kind::Jobs) => &[JOBS],
        Some(Kind::Tasks) => &[TASKS],
        Some(Kind::Coordinator) => &[COORDINATOR],
        Some(Kind::Member) => &[MEMBER],
        Some(Kind::Other) => &[],
        None => &[JOBS, COORDINATOR, MEMBER],
    };
    own.iter().chain(&[OPTIONS]).flat_map(|files| files.iter().copied()).collect()
}

/// Pages to see besides, by the name of a page.
pub fn pages(page: &str) -> Vec<String> {
    let others = known(page).map_or(&[][..], |(_, _, others, _)| *others);
    others.iter().map(|name| format!("ckptd-{name}")).filter(|other| other != page).collect()
}

/// Topics of the guide, by the name of a page; none: all of them.
pub fn topics(page: &str) -> &'static [&'static str] {
    known(page).map_or(&[], |(_, _, _, topics)| *topics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_its_row_and_every_row_leads_somewhere() {
        let cli = Cli::command();
        let path = |name: &str| {
            let mut at = &cli;
            for part in name.split('-') {
                at = at.find_subcommand(part)?;
            }
            Some(at)
        };
        for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(known(&format!("ckptd-{}", command.get_name())).is_some(), "{command}");
        }
        for (name, _, others, topics) in TABLE {
            for name in [name].into_iter().chain(*others) {
                assert!(*name == "help" || path(name).is_some(), "{name}");
            }
            for topic in *topics {
                assert!(crate::commands::help::is_topic(topic), "{topic} of {name}");
            }
        }
        assert!(known("ckptd").is_none() && files("ckptd").len() > files("ckptd-run").len());
        assert_eq!(topics("ckptd-farm-run"), ["farm"]);
    }
}
