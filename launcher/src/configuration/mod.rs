//! What options are where the command line does not say: from files and the environment.
//!
//! - `files`: the files, and whether they may be believed.
//! - `keys`: the options that may be set, and what they are called there.
//! - `layers`: which of several settings holds, and where it comes from.

mod files;
mod keys;
mod layers;

use crate::INNER_CALL;
use clap::Command;
use clap::parser::ValueSource;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use thiserror::Error;

pub use layers::{Configuration, Setting, Source};

/// Why a configuration can't be used. What it concerns comes first: a file or a variable.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// A file can't be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A file is none, or larger than any that a person writes.
    #[error("{}: {reason}", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Somebody else could have written it.
    #[error("{}: {reason}; see 'ls -l'", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Who.
        reason: &'static str,
    },
    /// It is no TOML.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        message: String,
    },
    /// Something is set that there is not.
    #[error("{from}: there is no {what} {name}{}", nearest.as_ref().map_or(String::new(), |near| format!("; did you mean {near}?")))]
    Unknown {
        /// Where.
        from: Source,
        /// What is meant: a key, a command.
        what: &'static str,
        /// What it is called.
        name: String,
        /// What is called nearly so.
        nearest: Option<String>,
    },
    /// A value that the option does not take.
    #[error("{from}: {name}: {reason}")]
    Value {
        /// Where.
        from: Source,
        /// The key.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// The commands that are called by these arguments, one within the other, and the place after the last one. None for a call
/// without any.
pub fn called(root: &Command, arguments: &[OsString]) -> (Vec<String>, usize) {
    let (mut command, mut path, mut after) = (root, Vec::new(), 0);
    let mut rest = arguments.iter().enumerate().skip(1);
    while let Some((at, argument)) = rest.next() {
        if argument == "--dir" {
            rest.next();
            continue;
        }
        let Some(word) = argument.to_str() else { break };
        if word.starts_with('-') && word != "-" {
            continue;
        }
        let Some(found) = command.find_subcommand(word) else { break };
        path.push(found.get_name().to_owned());
        after = at + 1;
        command = found;
    }
    (path, after)
}

/// Commands that take nothing from a configuration. mpirun calls `rsh`, and a job must not die of a file that is being edited;
/// help is for whoever has a wrong one, too; and the demonstration is a world of its own.
const EXEMPT: [&str; 4] = ["rsh", "help", "demo", "demo-part"];

/// Whether a command takes nothing from a configuration.
pub fn is_exempt(path: &[String]) -> bool {
    path.first().is_some_and(|first| EXEMPT.contains(&first.as_str()))
}

/// The arguments, with what is configured for the command that is called, as far as they do not say otherwise.
///
/// # Errors
/// What is configured for that command, and can't be.
pub fn apply(
    root: &Command,
    mut arguments: Vec<OsString>,
) -> Result<Vec<OsString>, ConfigurationError> {
    let (path, after) = called(root, &arguments);
    if path.is_empty() || is_exempt(&path) || std::env::var_os(INNER_CALL).is_some() {
        return Ok(arguments);
    }
    let configuration = Configuration::read(root)?;
    let mut settings: Vec<Setting> =
        configuration.dir().into_iter().chain(configuration.of(&path)?).collect();
    // What is nearer to the user keeps out what it excludes.
    settings.sort_by_key(|setting| std::cmp::Reverse(configuration.nearness(&setting.source)));
    let (mut given, command) = given(root, &path, &arguments);
    let mut more: Vec<OsString> = Vec::new();
    let is_settled = is_settled(&path, &given);
    for setting in settings {
        if is_settled && !NEVER_SETTLED.contains(&setting.key.id.as_str()) {
            continue;
        }
        if !is_said_otherwise(command, &setting.key.id, &given) {
            more.extend(as_arguments(&setting));
            given.insert(setting.key.id);
        }
    }
    arguments.splice(after..after, more);
    Ok(arguments)
}

/// Options that are no settings of a run.
const NEVER_SETTLED: [&str; 2] = ["dir", "quiet"];

/// Whether this goes on with a run that has settings of its own: what is configured is for new ones.
fn is_settled(path: &[String], given: &BTreeSet<String>) -> bool {
    path == ["farm", "run"] && given.contains("resume")
}

/// What the command line says of the options of a command, and that command.
fn given<'c>(
    root: &'c Command,
    path: &[String],
    arguments: &[OsString],
) -> (BTreeSet<String>, &'c Command) {
    // What is wrong or missing in it is told once all is there.
    let matches = root.clone().ignore_errors(true).try_get_matches_from(arguments).ok();
    let (mut own, mut command) = (matches.as_ref(), root);
    for name in path {
        own = own.and_then(|own| own.subcommand_matches(name));
        command = command.find_subcommand(name).unwrap_or(command);
    }
    let said =
        |id: &str| own.is_some_and(|own| own.value_source(id) == Some(ValueSource::CommandLine));
    let ids = command.get_arguments().map(|argument| argument.get_id().as_str());
    (ids.filter(|id| said(id)).map(str::to_owned).collect(), command)
}

/// Whether the command line has an option, or one that excludes it.
fn is_said_otherwise(command: &Command, id: &str, given: &BTreeSet<String>) -> bool {
    let excludes = |one: &str, other: &str| {
        let argument = command.get_arguments().find(|argument| argument.get_id() == one);
        let conflicts = argument.map(|argument| command.get_arg_conflicts_with(argument));
        conflicts.into_iter().flatten().any(|conflict| conflict.get_id() == other)
    };
    given.iter().any(|said| said == id || excludes(id, said) || excludes(said, id))
}

fn as_arguments(setting: &Setting) -> Vec<OsString> {
    let long = &setting.key.long;
    match setting.key.is_flag {
        // What is false is so without a word.
        true if setting.values == ["false"] => Vec::new(),
        true => vec![format!("--{long}").into()],
        false => setting.values.iter().map(|value| format!("--{long}={value}").into()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn path(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        called(&Cli::command(), &words).0
    }

    #[test]
    fn the_command_that_is_called_is_found() {
        assert_eq!(path(&["ckptd", "run", "status"]), ["run"]);
        assert_eq!(path(&["ckptd", "--dir", "run", "status", "-x"]), ["status"]);
        assert_eq!(path(&["ckptd", "--dir=/x", "slurm", "run", "ls"]), ["slurm", "run"]);
        assert!(path(&["ckptd", "--version"]).is_empty());
        assert!(path(&["ckptd", "-", "run"]).is_empty());
    }

    #[test]
    fn what_the_command_line_says_keeps_out_what_it_excludes() {
        let root = Cli::command();
        let words =
            ["ckptd", "run", "--quiet", "--store", "/x", "ls", "--verbose"].map(OsString::from);
        let (path, after) = called(&root, &words);
        assert_eq!(after, 2);
        let (given, command) = given(&root, &path, &words);
        let said: Vec<&str> = given.iter().map(String::as_str).collect();
        assert!(said.contains(&"quiet") && said.contains(&"store") && !said.contains(&"verbose"));
        assert!(is_said_otherwise(command, "verbose", &given));
        assert!(is_said_otherwise(command, "store", &given));
        assert!(!is_said_otherwise(command, "store_every", &given));
    }

    #[test]
    fn what_mpirun_calls_is_exempt() {
        assert!(is_exempt(&path(&["ckptd", "rsh", "node1", "ls"])));
        assert!(!is_exempt(&path(&["ckptd", "run", "rsh"])));
    }
}
