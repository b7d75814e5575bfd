//! Paragraphs behind the help of commands, as lines that are as long as the terminal has room for.

use clap::Command;

/// Joins the lines of paragraphs, in which the source has its own breaks. Lists and examples, whose lines are indented, stay.
pub fn flowing(command: Command) -> Command {
    let help = command.get_after_long_help().map(|help| joined(&help.to_string()));
    let command = match help {
        Some(help) => command.after_long_help(help),
        None => command,
    };
    command.mut_subcommands(flowing)
}

fn joined(help: &str) -> String {
    let paragraphs = help.split("\n\n").map(|paragraph| {
        let is_prose = paragraph.lines().all(|line| !line.starts_with("  "));
        if is_prose { paragraph.replace('\n', " ") } else { paragraph.to_owned() }
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_flow_and_examples_stay() {
        let help = "Examples:\n  a\n  b\n\nOne line\nand another.\n\nExit status: 0,\n2.";
        let flown = "Examples:\n  a\n  b\n\nOne line and another.\n\nExit status: 0, 2.";
        let command = Command::new("a").subcommand(Command::new("b").after_long_help(help));
        let command = flowing(command);
        let inner = command.find_subcommand("b").unwrap();
        assert_eq!(inner.get_after_long_help().unwrap().to_string(), flown);
    }
}
