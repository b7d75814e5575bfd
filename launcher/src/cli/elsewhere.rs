//! What other programs call what ckptd does, for who knows those.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands of tmux, Kubernetes, restic, Slurm and a shell, and those of ckptd that do it.
const COMMANDS: [(&str, &str); 16] = [
    ("cancel", "stop"),
    ("cordon", "drain"),
    ("detach", "run --detach"),
    ("forget", "rm"),
    ("join", "agent --join-file FILE"),
    ("jobs", "ls"),
    ("kill", "stop"),
    ("list", "ls"),
    ("log", "logs"),
    ("node", "nodes"),
    ("ps", "ls"),
    ("resume", "restart"),
    ("snapshot", "checkpoint"),
    ("snapshots", "status"),
    ("srun", "slurm run"),
    ("start", "run"),
];

/// A line about what was perhaps meant by what is no command or option here.
pub fn hint(error: &clap::Error) -> Option<String> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = word(ContextKind::InvalidSubcommand)?;
            let (_, ours) = COMMANDS.iter().find(|(theirs, _)| *theirs == word)?;
            Some(format!("'{word}' is 'ckptd {ours}' here"))
        }
        ErrorKind::UnknownArgument => {
            let is_ranks = matches!(word(ContextKind::InvalidArg)?, "-n" | "-np" | "-N");
            is_ranks.then(|| {
                "options of a launcher stand behind it: ckptd run mpirun -np 4 ./program".to_owned()
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::{CommandFactory, Parser};

    fn hinted(words: &[&str]) -> Option<String> {
        hint(&Cli::try_parse_from(words).unwrap_err())
    }

    #[test]
    fn words_of_other_programs_are_known() {
        assert_eq!(hinted(&["ckptd", "ps"]).as_deref(), Some("'ps' is 'ckptd ls' here"));
        let ranks = hinted(&["ckptd", "run", "-np", "4", "./x"]).unwrap();
        assert!(ranks.contains("mpirun -np 4"), "{ranks}");
        assert_eq!(hinted(&["ckptd", "zzz"]), None);
        assert_eq!(hinted(&["ckptd", "ls", "--zzz"]), None);
    }

    #[test]
    fn all_lead_to_commands_that_there_are() {
        let cli = Cli::command();
        for (theirs, ours) in COMMANDS {
            let ours = ours.split(' ').next().unwrap();
            assert!(cli.find_subcommand(ours).is_some(), "{ours}");
            assert!(cli.find_subcommand(theirs).is_none(), "{theirs} is a command");
        }
    }
}
