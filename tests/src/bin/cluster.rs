//! The end-to-end tests of the cluster: nodes of namespaces, killed, cut off and brought back.

use std::process::ExitCode;
use std::time::Instant;

use ckptd_tests::cluster::demo;
use ckptd_tests::cluster::suite::{self, Stage};
use ckptd_tests::workspace::Workspace;
use clap::Parser;

/// Runs jobs on clusters of namespaces and takes nodes, links and daemons away from them.
#[derive(Parser)]
struct Options {
    /// Tests to run: every one whose name contains one of these (all by default)
    names: Vec<String>,
    /// Run just this test; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Show a node's loss instead, step by step
    #[arg(long)]
    demo: bool,
    /// List the tests
    #[arg(long)]
    list: bool,
    /// Run each that often
    #[arg(long, default_value_t = 1)]
    times: usize,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cluster: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let mut cases = suite::all();
    for name in &options.only {
        if !cases.iter().any(|case| case.name == name) {
            return Err(format!("there is no test {name}; --list lists them").into());
        }
    }
    cases.retain(|case| {
        let named = options.names.iter().any(|name| case.name.contains(name));
        let only = options.only.iter().any(|name| case.name == name);
        named || only || (options.names.is_empty() && options.only.is_empty())
    });
    if options.list {
        cases.iter().for_each(|case| println!("{}: {}", case.name, case.about));
        return Ok(true);
    }
    let workspace = Workspace::new()?;
    let stage = Stage::new(&workspace)?;
    if options.demo {
        demo::run(&stage)?;
        return Ok(true);
    }
    let (mut passed, mut failed) = (0, 0);
    let began = Instant::now();
    // One after the other: each keeps all cores busy, and time limits are part of what is tested.
    for case in cases.iter().flat_map(|case| std::iter::repeat_n(case, options.times)) {
        let started = Instant::now();
        let outcome = (case.run)(&stage);
        let took = started.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                passed += 1;
                println!("pass {} ({took:.1} s)", case.name);
            }
            Err(failure) => {
                failed += 1;
                println!("FAIL {} ({took:.1} s): {failure}", case.name);
            }
        }
    }
    println!(
        "{passed} passed, {failed} failed; the cluster took {:.1} s",
        began.elapsed().as_secs_f64()
    );
    Ok(failed == 0)
}
