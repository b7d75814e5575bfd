//! Damage and hardship: flipped and cut images, full disks, little memory, ckptd killed at every
//! step of a checkpoint, two hundred checkpoints in a row.

mod hardship;
mod images;
mod leaks;
mod steps;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use ckptd_tests::account::{Account, running_as_root};
use ckptd_tests::job::Failure;
use clap::Parser;

use images::{HARMS, Killed};
use worker::Bench;

/// Damages images, fills disks, kills ckptd at every step, and expects the older checkpoint to stand.
#[derive(Parser)]
struct Options {
    /// Cases to run: every one whose name contains one of these (all by default)
    names: Vec<String>,
    /// Keep the test folder
    #[arg(long)]
    keep: bool,
}

/// What came of a case; `Ok(None)` where this machine can't do it.
type Outcome = Result<Option<()>, Failure>;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("damage: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs what was asked for and counts.
struct Report<'a> {
    options: &'a Options,
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Report<'_> {
    fn wants(&self, name: &str) -> bool {
        let names = &self.options.names;
        names.is_empty() || names.iter().any(|wanted| name.contains(wanted.as_str()))
    }

    fn case(&mut self, name: &str, run: impl FnOnce() -> Outcome) {
        if !self.wants(name) {
            return;
        }
        let started = Instant::now();
        let outcome = run();
        let took = started.elapsed().as_secs_f64();
        match outcome {
            Ok(Some(())) => {
                self.passed += 1;
                println!("pass {name} ({took:.2} s)");
            }
            Ok(None) => {
                self.skipped += 1;
                println!("skip {name}: this machine lacks what it needs");
            }
            Err(failure) => {
                self.failed += 1;
                println!("FAIL {name} ({took:.2} s): {failure}");
            }
        }
    }
}

fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let mut bench = Bench::new()?;
    let mut report = Report { options, passed: 0, failed: 0, skipped: 0 };
    let accounts = Account::available();
    let account = accounts[0];
    let images: Vec<String> = HARMS.iter().map(|harm| format!("image {}", harm.name)).collect();
    let (unmarked, strangers) = ("image mark-missing", "image foreign-files");
    let (on_demand, pagerless) = ("image chunk-flip on demand", "image pager killed on demand");
    if images
        .iter()
        .map(String::as_str)
        .chain([unmarked, strangers, on_demand, pagerless])
        .any(|name| report.wants(name))
    {
        let mut killed = Killed::new(&bench, account)?;
        for (harm, name) in HARMS.iter().zip(&images) {
            report.case(name, || killed.suffer(harm).map(Some));
        }
        report.case(unmarked, || killed.lack_the_mark().map(Some));
        report.case(strangers, || killed.bear_strangers().map(Some));
        // Only who may be told of all that processes do gets their pages on demand.
        if account == Account::Root {
            for harm in images::of_chunks() {
                let name = format!("image {} on demand", harm.name);
                report.case(&name, || killed.suffer_on_demand(Some(harm)).map(Some));
            }
            report.case(pagerless, || killed.suffer_on_demand(None).map(Some));
        }
    }
    for &account in &accounts {
        for step in steps::STEPS {
            report.case(&format!("killed at {step} {}", account.name()), || {
                steps::die_at(&bench, account, step).map(Some)
            });
        }
        report.case(&format!("killed unasked {}", account.name()), || {
            steps::die_unasked(&bench, account).map(Some)
        });
        report.case(&format!("file limit {}", account.name()), || {
            hardship::file_limit(&bench, account).map(Some)
        });
        report.case(&format!("full disk {}", account.name()), || {
            if !running_as_root() {
                return Ok(None);
            }
            hardship::full_disk(&bench, account).map(Some)
        });
        report.case(&format!("little memory {}", account.name()), || {
            if !running_as_root() {
                return Ok(None);
            }
            hardship::little_memory(&bench, account)
        });
    }
    report.case("two hundred checkpoints", || {
        leaks::many_checkpoints(&bench, accounts[accounts.len() - 1]).map(Some)
    });
    let Report { passed, failed, skipped, .. } = report;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 || options.keep {
        bench.keep();
        println!("files are in {}", bench.root().display());
    }
    Ok(failed == 0)
}
