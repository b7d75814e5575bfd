//! `ckptd man`: manual pages, made from the definition of the command line.

mod related;
mod sections;

use crate::cli::Cli;
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use sections::{Section, of_help};
use std::fs;
use std::io;
use std::path::Path;

/// The page of all of ckptd.
const MAIN: &str = "ckptd";

/// Writes ckptd.1, and for each command a page such as ckptd-run.1 and ckptd-slurm-run.1.
///
/// # Errors
/// Where the folder can't be written to.
pub fn perform(folder: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::of(format!("write the manual to {}", folder.display()), error);
    fs::create_dir_all(folder).map_err(failed)?;
    for (name, page) in pages().map_err(failed)? {
        fs::write(folder.join(name), page).map_err(failed)?;
    }
    Ok(())
}

/// Names of files, and what is in them.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, MAIN.to_owned(), &mut pages)?;
    Ok(pages)
}

/// The page of a command, and those of its commands.
fn add(command: &Command, name: String, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    pages.push((format!("{name}.1"), page(command, &name)?));
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        add(inner, format!("{name}-{}", inner.get_name()), pages)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let command = command.clone().version(env!("CARGO_PKG_VERSION"));
    let has_commands = command.get_subcommands().any(|inner| !inner.is_hide_set());
    let man = Man::new(command.after_long_help(""))
        .manual("ckptd")
        .source(concat!("ckptd ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    man.render_version_section(&mut text)?;
    let mut sections = of_help(&help);
    sections.push(if name == MAIN { sections::all_variables() } else { sections::variables(name) });
    sections.push(sections::files(name));
    sections.push(sections::see_also(name));
    sections.sort_by_key(Section::rank);
    for section in &sections {
        section.render(&mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("man1");
        perform(&folder).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        let main = read(MAIN);
        let cli = Cli::command();
        for name in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = name.get_name();
            let page = read(&format!("ckptd-{name}"));
            assert!(page.contains(".TH ckptd"), "{page}");
            for section in ["NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"] {
                let heading = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")];
                assert!(heading.iter().any(|h| page.contains(h)), "{section} of {name}: {page}");
            }
            assert!(!page.contains("EXTRA"), "{name}");
            assert!(main.contains(&format!("ckptd\\-{name}(1)")), "{name} is not in ckptd.1");
        }
        // Of commands that have others, these have them.
        let are_above = ["ckptd-config.1", "ckptd-farm.1", "ckptd-slurm.1"];
        for (name, page) in pages().unwrap() {
            let page = String::from_utf8(page).unwrap();
            let has_examples = page.contains(".SH EXAMPLES\n");
            assert!(has_examples || are_above.contains(&name.as_str()), "{name} has no examples");
        }
        // What ends as a job, or tells by its status how it was, says so.
        let usual = "0 where it was done, 2 for wrong usage";
        for name in [
            "run",
            "restart",
            "attach",
            "rsh",
            "adopt",
            "demo",
            "slurm-run",
            "farm-run",
            "farm-wait",
        ] {
            assert!(!read(&format!("ckptd-{name}")).contains(usual), "{name}");
        }
        assert!(read("ckptd-slurm-run").contains("ckptd\\-slurm(1)"));
        let examples = main.split("EXAMPLES").nth(1).unwrap();
        assert!(examples.contains("ckptd restart latest") && main.contains("CKPTD_LOG"));
        perform(Path::new("/dev/null/x")).unwrap_err();
    }
}
