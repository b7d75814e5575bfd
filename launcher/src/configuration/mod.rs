//! What options are where the command line does not say: from files and the environment.
//!
//! - `files`: the files, and whether they may be believed.
//! - `keys`: the options that may be set, and what they are called there.
//! - `layers`: which of several settings holds, and where it comes from.

mod files;
mod keys;
mod layers;

use clap::{ArgAction, Command};
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

/// The commands that are called by these arguments: one within the other. Empty for a call without any.
pub fn called(root: &Command, arguments: &[OsString]) -> Vec<String> {
    let (mut command, mut path) = (root, Vec::new());
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
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
        command = found;
    }
    path
}

/// Whether a command takes nothing from a configuration: mpirun calls it, and a job must not die of a file that is being
/// edited.
pub fn is_exempt(path: &[String]) -> bool {
    path.first().is_some_and(|first| first == "rsh")
}

/// The command line's definition, with what is configured as defaults of the options of the command that is called.
///
/// # Errors
/// What is configured for that command, and can't be.
pub fn apply(root: Command, arguments: &[OsString]) -> Result<Command, ConfigurationError> {
    let path = called(&root, arguments);
    if path.is_empty() || is_exempt(&path) {
        return Ok(root);
    }
    let configuration = Configuration::read(&root)?;
    let settings: Vec<Setting> =
        configuration.dir().into_iter().chain(configuration.of(&path)?).collect();
    let mut root = root;
    for setting in settings {
        let own = if setting.key.path.is_empty() { &[][..] } else { &path[..] };
        root = with_default(root, own, &setting);
    }
    Ok(root)
}

fn with_default(command: Command, path: &[String], setting: &Setting) -> Command {
    match path.split_first() {
        Some((first, rest)) => {
            command.mut_subcommand(first, |inner| with_default(inner, rest, setting))
        }
        None => command.mut_arg(setting.key.id.as_str(), |argument| {
            match argument.get_action() {
                // What is false is so without a word.
                ArgAction::SetTrue if setting.values == ["false"] => argument,
                _ => argument.default_values(setting.values.clone()),
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn path(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        called(&Cli::command(), &words)
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
    fn what_mpirun_calls_is_exempt() {
        assert!(is_exempt(&path(&["ckptd", "rsh", "node1", "ls"])));
        assert!(!is_exempt(&path(&["ckptd", "run", "rsh"])));
    }
}
