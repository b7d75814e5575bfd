//! `ckptd completions`: made from the definition of the command line.

mod names;

use super::print;
use crate::cli::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

/// Set by the shell when it asks for what may follow.
const ASKED: &str = "CKPTD_COMPLETE";
/// What the shell calls.
const NAME: &str = "ckptd";
/// A file of functions of zsh is run when the first completion is asked for: the function that it defines has to be called then.
const AUTOLOADED: &str =
    "\n[[ ${funcstack[1]} == _ckptd ]] && _clap_dynamic_completer_ckptd \"$@\"\n";

/// Prints the script that a shell reads. It calls ckptd for each completion, so that it knows the jobs and the members of the cluster.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    print(&script(shell).map_err(|error| Failure::of("print the completions", error))?)
}

fn script(shell: Shell) -> std::io::Result<String> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let known = shells.completer(&name).ok_or(std::io::ErrorKind::Unsupported)?;
    let mut script = Vec::new();
    known.write_registration(ASKED, NAME, NAME, NAME, &mut script)?;
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        // Names of files are quoted, and stand in where nothing is offered.
        Shell::Bash => {
            Ok(script.replace("-o bashdefault", "-o bashdefault -o default -o filenames"))
        }
        Shell::Zsh => Ok(script + AUTOLOADED),
        _ => Ok(script),
    }
}

/// Answers a shell that asks what may follow; whether it was one.
///
/// # Errors
/// What clap says of the question.
pub fn answer() -> Result<bool, clap::Error> {
    let here = std::env::current_dir().ok();
    let definition = || names::offered(Cli::command());
    let asked = CompleteEnv::with_factory(definition).var(ASKED).bin(NAME).completer(NAME);
    asked.try_complete(std::env::args_os(), here.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = script(shell).unwrap();
            assert!(script.contains(ASKED) && script.contains(NAME), "{shell}: {script}");
        }
    }
}
