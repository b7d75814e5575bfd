//! Command lines in the files for Kubernetes are ones that this ckptd takes.

use super::Cli;
use clap::Parser;
use yaml_rust2::{Yaml, YamlLoader};

const CLUSTER: &str = include_str!("../../../packaging/container/kubernetes.yaml");
const GUIDE: &str = include_str!("../../../docs/src/guides/schedulers.md");
/// What the image of ckptd alone begins with (packaging/container/Dockerfile).
const ENTRY: &str = "ckptd";

/// All commands in a document, in the order of its lines: what a container or a hook runs.
fn commands(of: &Yaml, found: &mut Vec<Vec<String>>) {
    let words = |key: &str| -> Vec<String> {
        let list = of[key].as_vec().map_or(&[][..], Vec::as_slice);
        list.iter().map(|word| word.as_str().expect("words are strings").to_owned()).collect()
    };
    let (command, arguments) = (words("command"), words("args"));
    match (command.is_empty(), arguments.is_empty()) {
        (true, true) => {}
        (true, false) => found.push([vec![ENTRY.to_owned()], arguments].concat()),
        (false, _) => found.push([command, arguments].concat()),
    }
    match of {
        Yaml::Hash(map) => map.values().for_each(|value| commands(value, found)),
        Yaml::Array(list) => list.iter().for_each(|value| commands(value, found)),
        _ => {}
    }
}

/// Those of ckptd in a file, each of which it takes.
fn taken(text: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for document in YamlLoader::load_from_str(text).unwrap() {
        assert!(!document["kind"].is_badvalue(), "each document has a kind");
        commands(&document, &mut all);
    }
    all.retain(|words| words[0] == ENTRY || words[0].ends_with("/ckptd"));
    for words in &all {
        if let Err(error) = Cli::try_parse_from(words) {
            panic!("{words:?}: {error}");
        }
    }
    all
}

#[test]
fn the_cluster_among_pods_is_started_by_commands_that_are_taken() {
    let found = taken(CLUSTER);
    let has = |word: &str| found.iter().any(|words| words.iter().any(|other| other == word));
    assert!(found.len() == 3 && ["coordinator", "agent", "leave"].map(has) == [true; 3]);
    assert!(Cli::try_parse_from(["ckptd", "agent", "--dir", "/d", "--join-fil", "f"]).is_err());
}

#[test]
fn the_job_in_the_guide_to_schedulers_is_run_by_a_command_that_is_taken() {
    let section = GUIDE.split("\n## Kubernetes\n").nth(1).unwrap();
    // The first block: from its first line on, all that is indented.
    let lines = section.lines().skip_while(|line| line.is_empty());
    let block = lines.take_while(|line| line.starts_with("    "));
    let text: Vec<&str> = block.map(|line| &line[4..]).collect();
    let found = taken(&text.join("\n"));
    assert!(found.len() == 1 && found[0][1] == "run", "{found:?}");
}
