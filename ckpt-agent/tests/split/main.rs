//! Brings an instance back in several parts on one machine, each in an init of its own, with
//! carriers between the relays' ends as agents would have them.

mod carrier;
mod program;
mod rig;

use std::process::ExitCode;
use std::time::Duration;

use rig::{Instance, Outcome, Rig};

type Case = (&'static str, fn() -> Outcome);

const CASES: &[Case] = &[
    ("parent_and_child_over_a_pipe", || family("pipe")),
    ("parent_and_child_over_a_socket", || family("socket")),
    ("parent_and_child_over_a_terminal", || family("terminal")),
    ("signals_between_parent_and_child", || family("signals")),
    ("child_killed_by_a_signal", || family("killed")),
    ("parent_dies_first", || family("orphan")),
    ("everything", || family("all")),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let name = arguments.next().unwrap_or_default();
    if name == ckpt_agent::INIT_NAME {
        return ExitCode::from(ckpt_agent::run_init());
    }
    let arguments: Vec<String> = arguments.collect();
    if let [flag, kind] = arguments.as_slice() {
        if flag == program::FLAG {
            return program::run(kind);
        }
    }
    if arguments.iter().any(|argument| argument == "--list") {
        CASES.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let filter = filter.map_or("", String::as_str);
    let mut failed = 0;
    for (name, case) in CASES.iter().filter(|(name, _)| name.contains(filter)) {
        match case() {
            Ok(()) => println!("test {name} ... ok"),
            Err(text) => {
                println!("test {name} ... FAILED: {text}");
                failed += 1;
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Some rounds of work between the generations.
const WORK: Duration = Duration::from_millis(150);

/// Runs a program of two processes, takes them apart, lets them work, brings both parts back once
/// more, and lets them finish.
fn family(kind: &str) -> Outcome {
    let mut rig = Rig::new()?;
    let job = rig.launch(kind)?;
    std::thread::sleep(WORK);
    let image = rig.dump(vec![job])?.remove(0);
    let units = image.units()?;
    if units.len() != 2 {
        return Err(format!("it cannot be taken apart: {units:?}"));
    }
    let parts = rig.split(&image)?;
    std::thread::sleep(WORK);
    let images = rig.dump(parts)?;
    let mut parts: Vec<Instance> = Vec::new();
    for image in &images {
        parts.push(rig.restore(image, None)?);
    }
    std::thread::sleep(WORK);
    rig.finish(parts)
}
