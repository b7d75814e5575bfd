//! `ckptd config`.

use super::{print, print_json};
use crate::cli::{Cli, ConfigCommand, ListArguments};
use crate::configuration::{Configuration, ConfigurationError, Setting};
use crate::failure::Failure;
use crate::tables::{printable, table};
use clap::CommandFactory;
use serde::Serialize;

/// One option; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Shown {
    option: String,
    /// None: it has no default.
    values: Option<Vec<String>>,
    /// None: nobody has set it.
    from: Option<String>,
    variable: String,
}

/// One file; the keys stay as they are.
#[derive(Debug, Serialize)]
struct File {
    path: String,
    state: &'static str,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Told {
    files: Vec<File>,
    options: Vec<Shown>,
}

pub fn perform(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Show { command, all, list } => show(&command, all, list),
    }
}

fn show(wanted: &[String], all: bool, list: ListArguments) -> Result<(), Failure> {
    let root = Cli::command();
    let configuration = Configuration::read(&root).map_err(usage)?;
    let mut commands = configuration.commands();
    if !wanted.is_empty() {
        commands.retain(|path| path == wanted);
        if commands.is_empty() {
            return Err(Failure::Usage(format!(
                "wrong usage: nothing is configured for a command {:?}",
                wanted.join(" ")
            )));
        }
    }
    let mut options = Vec::new();
    if let Some(dir) = configuration.dir().filter(|_| wanted.is_empty()) {
        options.push(shown(dir));
    }
    for path in &commands {
        let mut settings = configuration.of(path).map_err(usage)?;
        for key in configuration.keys(path) {
            match settings.iter().position(|setting| setting.key == key) {
                Some(place) => options.push(shown(settings.remove(place))),
                None if all => options.push(Shown {
                    option: key.name(),
                    variable: key.variable(),
                    values: key.default.map(|default| vec![default]),
                    from: None,
                }),
                None => {}
            }
        }
    }
    let files = configuration
        .files
        .iter()
        .map(|(path, state)| File { path: path.display().to_string(), state: state.words() });
    let told = Told { files: files.collect(), options };
    if list.json { print_json(&told) } else { print(&text(&told)) }
}

fn usage(error: ConfigurationError) -> Failure {
    Failure::Usage(error.to_string())
}

fn shown(setting: Setting) -> Shown {
    Shown {
        option: setting.key.name(),
        variable: setting.key.variable(),
        values: Some(setting.values),
        from: Some(setting.source.to_string()),
    }
}

fn text(told: &Told) -> String {
    let files =
        told.files.iter().map(|file| format!("{}: {}\n", printable(&file.path), file.state));
    let mut text: String = files.collect();
    text.push('\n');
    if told.options.is_empty() {
        return text + "nothing is set: all options have their defaults ('--all' shows them)\n";
    }
    let mut rows = vec![["OPTION", "VALUE", "FROM"].map(str::to_owned).to_vec()];
    for one in &told.options {
        let value = one.values.as_ref().map_or_else(|| "-".to_owned(), |values| values.join(","));
        let from = one.from.clone().unwrap_or_else(|| "default".to_owned());
        rows.push(vec![one.option.clone(), printable(&value), printable(&from)]);
    }
    text + &table(&rows)
}
