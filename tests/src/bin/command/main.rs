//! The command as a user meets it: terminals and keys, pipes and files, statuses, listings,
//! refusals.

mod adopted;
mod archives;
mod attached;
mod buckets;
mod called;
mod callers;
mod configured;
mod corpus;
mod daemons;
mod demo;
mod detached;
mod ends;
mod executed;
mod exported;
mod farms;
mod files;
mod greedy;
mod gridrpc;
mod joined;
mod kept;
mod listings;
mod logs;
mod manual;
mod memory;
mod recipients;
mod rehearsals;
mod schedulers;
mod silent;
mod sockets;
mod stage;
mod streams;
mod submitted;
mod terminals;
mod timeline;
mod undisturbed;
mod vain;
mod webhooks;
mod workflows;

use std::process::{Child, Command, ExitCode};
use std::time::Instant;

use ckptd_tests::account::Account;
use ckptd_tests::job::Failure;
use ckptd_tests::workspace::Workspace;
use clap::Parser;

use stage::Stage;

/// Calls ckptd as a user does: on terminals, with pipes and files, and in the wrong moment.
#[derive(Parser)]
struct Options {
    /// Cases to run: every one whose name contains one of these (all by default)
    names: Vec<String>,
    /// Only those that wait most of the time; where all are run, a process beside does these.
    #[arg(long, hide = true)]
    waiting: bool,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        if self.names.is_empty() {
            return WAITING.contains(&name) == self.waiting;
        }
        self.names.iter().any(|part| name.contains(part))
    }
}

/// What takes long because it waits, for servers that are silent and time that passes, and touches nothing of the machine's.
const WAITING: &[&str] = &[
    "kept-in-s3",
    "silent-s3",
    "archives-in-s3",
    "completion-in-s3",
    "scripts-of-schedulers",
    "stuck-step",
    "farm-python",
    "farm-snakemake",
];

type Case = fn(&Stage) -> Result<(), Failure>;

const CASES: &[(&str, Case)] = &[
    ("inherited-capabilities", streams::capabilities),
    ("pipes", streams::pipes),
    ("files-as-streams", streams::files),
    ("statuses", streams::statuses),
    ("early-reader", streams::early_reader),
    ("pipes-of-three-generations", streams::pipes_of_three_generations),
    ("deadly-signals", streams::deadly_signals),
    ("foreign-signals", streams::foreign_signals),
    ("stubborn-job", streams::stubborn_job),
    ("json", listings::json),
    ("report", listings::report),
    ("stop-with-checkpoint", listings::stop_with_checkpoint),
    ("configured", configured::holds),
    ("configured-wrong", configured::wrong),
    ("refusals", listings::refusals),
    ("help", manual::help),
    ("help-on-a-terminal", manual::pager),
    ("completions", manual::completions),
    ("demo", demo::shown),
    ("demo-interrupted", demo::interrupted),
    ("demo-refused", demo::refused),
    ("joined-without-its-agent", joined::without_its_agent),
    ("rm-ended", listings::rm_ended),
    ("launcher-killed", listings::launcher_killed),
    ("adopted", adopted::restarted),
    ("adopted-and-left", adopted::left),
    ("adopted-and-ended", adopted::ended),
    ("adopted-and-stopped", adopted::stopped),
    ("adopted-and-outlived", adopted::outlived),
    ("adopted-on-a-terminal", adopted::on_a_terminal),
    ("adopted-not", adopted::refused),
    ("farm-short", farms::short),
    ("farm-killed", farms::killed),
    ("farm-killed-often", farms::killed_often),
    ("farm-half-killed", farms::half_killed),
    ("farm-unrecorded-end", farms::unrecorded),
    ("farm-not-brought-back", farms::not_brought_back),
    ("farm-interrupted", farms::interrupted),
    ("farm-stopped", farms::stopped),
    ("farm-removed", farms::removed),
    ("farm-names", farms::names),
    ("farm-failures", farms::failures),
    ("farm-halted", farms::halted),
    ("farm-values", farms::values),
    ("farm-left-behind", farms::left_behind),
    ("farm-unkept", farms::unkept),
    ("farm-full-disk", farms::full_disk),
    ("farm-submitted", submitted::exact),
    ("farm-submitted-and-cancelled", submitted::cancelled),
    ("farm-submitted-and-retried", submitted::retried),
    ("farm-submitted-and-killed", submitted::killed),
    ("farm-submitted-and-killed-often", submitted::killed_often),
    ("farm-submitted-and-stopped", submitted::stopped),
    ("farm-submitted-at-once", submitted::at_once),
    ("farm-submitted-at-the-end", submitted::at_the_end),
    ("farm-submitted-and-removed", submitted::removed),
    ("farm-submitted-by-another", submitted::by_another),
    ("farm-in-c", gridrpc::works),
    ("farm-in-c-sanitized", gridrpc::sanitized),
    ("farm-in-c-killed", gridrpc::killed),
    ("farm-in-c-killed-often", gridrpc::killed_often),
    ("farm-in-c-checkpointed", gridrpc::checkpointed),
    ("farm-in-c-more-servers", gridrpc::more_servers),
    ("farm-in-c-without-a-farm", gridrpc::missing),
    ("farm-in-c-not-brought-back", gridrpc::stuck),
    ("farm-in-c-refused", gridrpc::refused),
    ("farm-waited-for", executed::each),
    ("farm-waited-for-and-killed", executed::resumed),
    ("farm-executed", executed::exactly),
    ("farm-executed-and-killed", executed::killed),
    ("farm-executed-in-vain", vain::stuck),
    ("farm-executed-unread", vain::unread),
    ("farm-executed-in-tries", vain::tries),
    ("farm-executed-and-stopped", vain::stopped),
    ("farm-executed-within", vain::nested),
    ("farm-make", callers::make),
    ("farm-snakemake", callers::snakemake),
    ("farm-python", callers::python),
    ("workflow-killed", workflows::killed),
    ("workflow-failed", workflows::failed),
    ("workflow-without-file", workflows::without_file),
    ("workflow-refused", workflows::refused),
    ("workflow-ordered", workflows::ordered),
    ("workflow-reported", workflows::reported),
    ("export-and-import", archives::there_and_back),
    ("hostile-archives", archives::hostile),
    ("interrupted-import", archives::interrupted),
    ("corpus", corpus::restarted),
    ("greedy-archives", greedy::refused),
    ("full-import", greedy::full),
    ("encrypted-archives", recipients::there),
    ("encrypted-archives-refused", recipients::refusals),
    ("encrypted-archives-damaged", recipients::damaged),
    ("encrypted-archives-by-age", recipients::by_age),
    ("archives-in-s3", buckets::there_and_back),
    ("completion-in-s3", buckets::completion),
    ("silent-s3", silent::server),
    ("between-checkpoints", undisturbed::between_checkpoints),
    ("kept-in-a-folder", kept::in_a_folder),
    ("kept-later", kept::later),
    ("kept-in-s3", kept::in_s3),
    ("scripts-of-schedulers", schedulers::scripts),
    ("ended-before-the-mark", ends::before_the_mark),
    ("ended-meanwhile", ends::meanwhile),
    ("checkpoint-on-a-signal", ends::checkpoint_on),
    ("rehearsals", rehearsals::leave_no_trace),
    ("failing-rehearsals", rehearsals::tell_what_fails),
    ("run-with-rehearsals", rehearsals::of_a_job_that_runs),
    ("grown-file", files::grown),
    ("shorter-file", files::shorter),
    ("changed-file", files::changed),
    ("checked-file", files::checked),
    ("missing-file", files::missing),
    ("many-descriptors", files::many_descriptors),
    ("huge-pages-lacking", memory::huge_pages_lacking),
    ("huge-pages-shared", memory::shared_huge_pages_lacking),
    ("huge-pages-private", memory::private_huge_pages_lacking),
    ("huge-files", memory::huge_files_lacking),
    ("session-folder", files::session),
    ("shared-file", files::shared),
    ("temporary-folder", files::temporary),
    ("terminal-interrupt", terminals::interrupt),
    ("interactive-shell", terminals::interactive_shell),
    ("top", terminals::top),
    ("suspended", terminals::suspended),
    ("terminal-then-pipe", terminals::terminal_then_pipe),
    ("detached-here", detached::here),
    ("detached-wrong", detached::wrong),
    ("attached-output", attached::output),
    ("logs", attached::logs),
    ("attached-keys", attached::keys),
    ("daemons-beside-each-other", daemons::beside_each_other),
    ("log-times", logs::times),
    ("log-of-a-rank", logs::ranks),
    ("output-file", logs::output_file),
    ("called", called::hears),
    ("called-at-failures", called::hears_of_failures),
    ("called-in-vain", called::fails),
    ("called-without-a-launcher", called::outlives),
    ("called-not", called::refused),
    ("called-by-http", webhooks::told),
    ("attached-early-reader", attached::early_reader),
    ("attached-terminals", attached::terminals),
    ("attached-without-a-terminal", attached::without_a_terminal),
    ("attached-to-a-stopped-job", attached::stopped),
    ("trace", timeline::of_a_job),
    ("spans-exported", exported::spans),
    ("trace-refused", timeline::refused),
    ("stuck-step", timeline::stuck),
    ("restart-at-once", sockets::restart_at_once),
    ("port-taken", sockets::port_taken),
    ("asking-port-taken", sockets::asking_port_taken),
    ("lost-address", sockets::lost_address),
    ("external-fail", sockets::external),
];

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("command: {error}");
            ExitCode::from(2)
        }
    }
}

/// Those that wait, beside the others.
fn begin_waiting(options: &Options) -> std::io::Result<Option<Child>> {
    if options.waiting || !options.names.is_empty() {
        return Ok(None);
    }
    let is_case = |waiting: &&str| CASES.iter().any(|(name, _)| name == waiting);
    assert!(WAITING.iter().all(is_case), "a name of none that waits");
    Command::new(std::env::current_exe()?).arg("--waiting").spawn().map(Some)
}

fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let beside = begin_waiting(options)?;
    let has_passed = run_cases(options);
    let has_passed_beside = beside.map(|mut beside| beside.wait()).transpose()?;
    Ok(has_passed? && has_passed_beside.is_none_or(|status| status.success()))
}

fn run_cases(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let mut workspace = Workspace::new()?;
    let (mut passed, mut failed) = (0, 0);
    for account in Account::available() {
        for (name, case) in CASES.iter().filter(|(name, _)| options.wants(name)) {
            let name = format!("{name} {}", account.name());
            let home = workspace.root.path().join(name.replace(' ', "."));
            let started = Instant::now();
            let outcome = Stage::new(&workspace.ckptd, account, &home).and_then(|s| case(&s));
            let took = started.elapsed().as_secs_f64();
            match outcome {
                Ok(()) => {
                    passed += 1;
                    println!("pass {name} ({took:.2} s)");
                }
                Err(failure) => {
                    failed += 1;
                    println!("FAIL {name} ({took:.2} s): {failure}");
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, 0 skipped");
    if failed > 0 {
        workspace.root.disable_cleanup(true);
        println!("files are in {}", workspace.root.path().display());
    }
    Ok(failed == 0)
}
