//! The options that may be set, and what they are called in files and the environment.

use clap::{Arg, ArgAction, Command};

/// Options that are for one call alone: what they do should be asked for each time, or would be done by two jobs at once.
const FOR_ONE_CALL: [&str; 14] = [
    "help",
    "version",
    "force",
    "recover",
    "rotate",
    "ended",
    "older",
    "remove",
    "remove-key",
    "replace",
    "resume",
    "results",
    "output",
    "trace",
];

/// Options whose values are commands, in which there are commas: in a variable each has a line of its own.
const COMMANDS: [&str; 1] = ["on"];

/// An option that may be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The commands, one within the other.
    pub path: Vec<String>,
    /// What clap calls it.
    pub id: String,
    /// What it is called on the command line, without the dashes.
    pub long: String,
    /// It takes no value, but true or false here.
    pub is_flag: bool,
    /// It may have several values.
    pub takes_several: bool,
    /// What it is where nobody says anything.
    pub default: Option<String>,
}

impl Key {
    fn of(path: &[String], argument: &Arg) -> Option<Self> {
        let long = argument.get_long()?.to_owned();
        let is_flag = matches!(argument.get_action(), ArgAction::SetTrue);
        let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
        if FOR_ONE_CALL.contains(&long.as_str()) || !(is_flag || takes_value) {
            return None;
        }
        let defaults: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        Some(Self {
            path: path.to_vec(),
            id: argument.get_id().as_str().to_owned(),
            long,
            is_flag,
            takes_several: matches!(argument.get_action(), ArgAction::Append)
                || argument.get_value_delimiter().is_some(),
            default: (!defaults.is_empty()).then(|| defaults.join(",")),
        })
    }

    /// As it is written with its commands: `run.interval`.
    pub fn name(&self) -> String {
        self.path.iter().map(|command| format!("{command}.")).collect::<String>() + &self.long
    }

    /// What is between several values in a variable.
    pub fn separator(&self) -> char {
        if COMMANDS.contains(&self.long.as_str()) { '\n' } else { ',' }
    }

    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        variable(&self.path) + &self.long.replace('-', "_").to_uppercase()
    }
}

/// What the environment variables of a command's options begin with.
pub fn variable(path: &[String]) -> String {
    let words = path.iter().map(|word| word.replace('-', "_").to_uppercase() + "_");
    std::iter::once("CKPTD_".to_owned()).chain(words).collect()
}

/// The options of the command at `path` that may be set. The first one is `dir` for the empty path.
pub fn keys(command: &Command, path: &[String]) -> Vec<Key> {
    let is_own = |argument: &&Arg| path.is_empty() || !argument.is_global_set();
    command.get_arguments().filter(is_own).filter_map(|one| Key::of(path, one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn no_variable_means_two_things() {
        let root = Cli::command();
        let mut known = vec!["CKPTD_AGENT_SOCKET".to_owned(), "CKPTD_AGENT_OPTIONS".into()];
        known.extend(["CKPTD_COORDINATOR_OPTIONS".to_owned()]);
        let mut look = |command: &Command, path: &[String]| {
            for key in keys(command, path) {
                assert!(!known.contains(&key.variable()), "{}", key.variable());
                known.push(key.variable());
            }
        };
        for command in root.get_subcommands() {
            let path = [command.get_name().to_owned()];
            look(command, &path);
            for inner in command.get_subcommands() {
                look(inner, &[path[0].clone(), inner.get_name().to_owned()]);
            }
        }
        assert!(known.contains(&"CKPTD_RUN_FILE_CHECK".to_owned()));
        assert!(known.contains(&"CKPTD_SLURM_RUN_SPARE".to_owned()));
    }

    #[test]
    fn what_destroys_is_not_configured() {
        let root = Cli::command();
        let all = root.get_subcommands().flat_map(|command| keys(command, &[]));
        let known: Vec<String> = all.map(|key| key.long).collect();
        for destroys in ["force", "recover", "rotate", "ended", "remove", "remove-key", "output"] {
            assert!(!known.iter().any(|long| long == destroys), "{destroys}");
        }
    }
}
