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

/// A line about what was perhaps meant by what is no command or option here; `arguments` without the program.
pub fn hint(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    let with_value = |at: usize| at > 0 && arguments[at - 1] == "--dir";
    let words = arguments.iter().enumerate().filter(|(at, _)| !with_value(*at));
    let mut commands = words.map(|(_, word)| word).filter(|word| !word.starts_with('-'));
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = word(ContextKind::InvalidSubcommand)?;
            let is_first = commands.next().is_some_and(|first| first == word);
            let (_, ours) = COMMANDS.iter().find(|(theirs, _)| is_first && *theirs == word)?;
            Some(format!("'{word}' is 'ckptd {ours}' here"))
        }
        ErrorKind::UnknownArgument => {
            let is_ranks = matches!(word(ContextKind::InvalidArg)?, "-n" | "-np" | "-N");
            (is_ranks && commands.next().is_some_and(|first| first == "run")).then(|| {
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
        let arguments: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
        hint(&Cli::try_parse_from(words).unwrap_err(), &arguments)
    }

    #[test]
    fn words_of_other_programs_are_known() {
        assert_eq!(hinted(&["ckptd", "ps"]).as_deref(), Some("'ps' is 'ckptd ls' here"));
        let ranks = hinted(&["ckptd", "run", "-np", "4", "./x"]).unwrap();
        assert!(ranks.contains("mpirun -np 4"), "{ranks}");
        assert_eq!(hinted(&["ckptd", "zzz"]), None);
        assert_eq!(hinted(&["ckptd", "ls", "--zzz"]), None);
        assert_eq!(hinted(&["ckptd", "farm", "kill", "3"]), None);
        assert_eq!(hinted(&["ckptd", "ls", "-n"]), None);
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
