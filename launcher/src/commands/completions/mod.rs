//! `ckptd completions` and `ckptd man`: made from the definition of the command line.

mod names;

use super::print;
use crate::cli::Cli;
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};
use clap_mangen::Man;
use std::fs;
use std::path::Path;

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

/// Writes ckptd.1, and ckptd-COMMAND.1 for each command.
pub fn manual(folder: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::of(format!("write the manual to {}", folder.display()), error);
    fs::create_dir_all(folder).map_err(failed)?;
    for (name, page) in pages().map_err(failed)? {
        fs::write(folder.join(name), page).map_err(failed)?;
    }
    Ok(())
}

/// Names of files, and what is in them.
fn pages() -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = vec![("ckptd.1".to_owned(), page(root.clone())?)];
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("ckptd-{}", command.get_name());
        let command = command.clone().version(env!("CARGO_PKG_VERSION"));
        pages.push((format!("{name}.1"), page(command)?));
    }
    Ok(pages)
}

fn page(command: Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command)
        .manual("ckptd")
        .source(concat!("ckptd ", env!("CARGO_PKG_VERSION")))
        .render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Vec<String> {
        let cli = Cli::command();
        let shown = cli.get_subcommands().filter(|command| !command.is_hide_set());
        shown.map(|command| command.get_name().to_owned()).collect()
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = script(shell).unwrap();
            assert!(script.contains(ASKED) && script.contains(NAME), "{shell}: {script}");
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("man1");
        manual(&folder).unwrap();
        let main = fs::read_to_string(folder.join("ckptd.1")).unwrap();
        for name in commands() {
            let page = fs::read_to_string(folder.join(format!("ckptd-{name}.1"))).unwrap();
            assert!(page.starts_with(".ie") || page.contains(".TH ckptd"), "{page}");
            assert!(page.contains("SYNOPSIS") && page.contains(".SH NAME"), "{name}");
            assert!(main.contains(&format!("ckptd\\-{}(1)", name)), "{name} is not in ckptd.1");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), commands().len() + 1);
        manual(Path::new("/dev/null/x")).unwrap_err();
    }
}
