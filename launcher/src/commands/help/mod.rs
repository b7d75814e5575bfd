//! `ckptd help`: what a command does, or a page of the manual.
//!
//! - `topics`: the pages.
//! - `render`: a page as text for a terminal.
//! - `pager`: how long text is shown.

mod pager;
mod render;
mod topics;

use super::print;
use crate::cli::{Cli, flowing};
use crate::failure::Failure;
use crate::nearest::nearest;
use clap::{Command, CommandFactory};
use std::fmt::Write;
use topics::{TOPICS, Topic};

/// The widest text that is made, in letters.
const WIDEST: usize = 100;

/// Whether there is a topic of that name.
#[cfg(test)]
pub fn is_topic(name: &str) -> bool {
    TOPICS.iter().any(|topic| topic.name == name)
}

/// Shows what these words name.
pub fn perform(words: &[String]) -> Result<(), Failure> {
    if words.is_empty() {
        return print(&all());
    }
    let shown = Shown::of(words)?;
    let Some(topic) = shown.topic else { return print(&shown.command.unwrap_or_default()) };
    let page = render::page(&topic.text(), pager::width().min(WIDEST), pager::is_terminal());
    let command = shown.command.map(|text| text + "\n");
    pager::show(&(command.unwrap_or_default() + &page))
}

/// The commands, and the topics behind them.
fn all() -> String {
    let mut text = flowing(Cli::command()).render_long_help().to_string();
    text.push_str("\nTopics, for 'ckptd help TOPIC':\n");
    for topic in TOPICS {
        // Writing to a String never fails.
        let _ = writeln!(text, "  {:<17}{}", topic.name, topic.about);
    }
    text
}

/// What is to be shown: of what is both a command and a topic, one behind the other.
#[derive(Debug)]
struct Shown {
    command: Option<String>,
    topic: Option<&'static Topic>,
}

impl Shown {
    fn of(words: &[String]) -> Result<Self, Failure> {
        let mut root = flowing(Cli::command());
        root.build();
        let found = words.iter().try_fold(&root, |command, word| command.find_subcommand(word));
        let command = found.cloned().map(|mut command| command.render_long_help().to_string());
        let topic = match words {
            [one] => TOPICS.iter().find(|topic| topic.name == *one),
            _ => None,
        };
        match (command, topic) {
            (None, None) => Err(unknown(&root, words)),
            (command, topic) => Ok(Self { command, topic }),
        }
    }
}

fn unknown(root: &Command, words: &[String]) -> Failure {
    let name = words.join(" ");
    let near =
        nearest(&name, names(root).into_iter()).map(|near| format!("; did you mean '{near}'?"));
    let near = near.unwrap_or_else(|| "; 'ckptd help' lists both".to_owned());
    Failure::Usage(format!("wrong usage: there is no command or topic '{name}'{near}"))
}

/// All that can be explained, but what is hidden.
fn names(root: &Command) -> Vec<String> {
    let shown = |command: &&Command| !command.is_hide_set();
    let commands = root.get_subcommands().filter(shown).flat_map(|command| {
        let name = command.get_name();
        let inner = command.get_subcommands().filter(shown);
        let inner = inner.map(move |inner| format!("{name} {}", inner.get_name()));
        std::iter::once(name.to_owned()).chain(inner)
    });
    TOPICS.iter().map(|topic| topic.name.to_owned()).chain(commands).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn commands_and_topics_are_found() {
        let run = Shown::of(&words("run")).unwrap();
        assert!(run.command.unwrap().contains("--interval") && run.topic.is_none());
        let inner = Shown::of(&words("slurm run")).unwrap();
        assert!(inner.command.unwrap().contains("--spare"));
        let both = Shown::of(&words("slurm")).unwrap();
        assert!(both.command.is_some() && both.topic.is_some());
        let topic = Shown::of(&words("limits")).unwrap();
        assert!(topic.command.is_none() && topic.topic.is_some());
    }

    #[test]
    fn what_is_unknown_has_a_neighbour() {
        let text = |name| {
            let failure = Shown::of(&words(name)).unwrap_err();
            assert_eq!(failure.exit_status(), 2);
            failure.to_string()
        };
        assert!(text("clustre").contains("did you mean 'cluster'?"));
        assert!(text("statsu").contains("did you mean 'status'?"));
        assert!(text("slurm rnu").contains("did you mean 'slurm run'?"));
        assert!(text("something-else").contains("'ckptd help' lists both"));
        assert!(text("run everything").contains("no command or topic 'run everything'"));
    }

    #[test]
    fn topics_are_listed() {
        let all = all();
        for topic in TOPICS {
            assert!(all.contains(&format!("\n  {} ", topic.name)), "{}", topic.name);
        }
        assert!(all.lines().all(|line| line.chars().count() <= WIDEST));
    }
}
