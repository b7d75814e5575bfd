//! What every command says of itself (`ckptd COMMAND --help`), as reviewed: a text that changes shows as a difference of
//! its file in `snapshots/`. `INSTA_UPDATE=always cargo test -p ckptd` writes them anew.

#![cfg(feature = "dmtcp")] // Which has options of its own.

use ckptd::cli::Cli;
use clap::{Command, CommandFactory};

fn check(name: &str, command: Command) {
    // As on a wide terminal, whatever this one is.
    let text = command.term_width(100).render_long_help().to_string();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn of_every_command() {
    let mut whole = Cli::command();
    whole.build();
    check("help", whole.clone());
    let names: Vec<String> = whole.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names.iter().filter(|name| *name != "help") {
        let command = whole.find_subcommand(name).cloned();
        let command = command.unwrap_or_else(|| panic!("{name} has gone"));
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            if one.get_name() != "help" {
                check(&format!("help-{name}-{}", one.get_name()), one.clone());
            }
        }
        check(&format!("help-{name}"), command);
    }
}
