//! `ckptd farm`.

mod exec;
mod logs;
mod names;
mod numbers;
mod open;
mod outlook;
mod patience;
mod register;
mod report;
mod status;
mod tasks;
mod wait;

use super::{Context, print, print_json};
use crate::cli::{FarmCommand, FarmRunArguments, FarmSettings, ListArguments};
use crate::failure::Failure;
use crate::farm::{self, Charge, Collected, Draft, FarmFolder};
use crate::tables::table;
use crate::text;
use serde::Serialize;
use std::path::Path;

pub fn perform(context: &Context, command: FarmCommand) -> Result<u8, Failure> {
    match command {
        FarmCommand::Run(arguments) => run(context, *arguments),
        FarmCommand::Report { run, output } => report::perform(context, &run, output).map(|()| 0),
        FarmCommand::Submit(arguments) => open::submit(context, arguments).map(|()| 0),
        FarmCommand::Start(arguments) => open::start(context, arguments).map(|()| 0),
        FarmCommand::Stop { farm, now } => open::stop(context, &farm, now).map(|()| 0),
        FarmCommand::Exec(arguments) => exec::perform(context, arguments),
        FarmCommand::Wait(arguments) => wait::perform(context, &arguments),
        FarmCommand::Cancel(of) => open::cancel(context, &of.farm, &of.tasks),
        FarmCommand::Retry(of) => open::retry(context, &of.farm, &of.tasks),
        FarmCommand::Logs { farm, follow, task } => {
            logs::perform(context, &farm, task, follow).map(|()| 0)
        }
        FarmCommand::Register(arguments) => register::perform(arguments).map(|()| 0),
        FarmCommand::Serve { folder } => farm::serve(folder),
        FarmCommand::Status { run, farm, list } => {
            status::perform(context, run.as_deref(), farm.as_deref(), &list).map(|()| 0)
        }
        FarmCommand::Ls(list) => ls(context, list).map(|()| 0),
        FarmCommand::Rm { runs } => rm(context, &runs).map(|()| 0),
        FarmCommand::Errand { order, program } => farm::errand(&order, program),
        FarmCommand::Work { folder, settings, guard, resume, quiet } => {
            farm::work(folder, &settings, guard, &resume, quiet)
        }
    }
}

fn run(context: &Context, arguments: FarmRunArguments) -> Result<u8, Failure> {
    let FarmRunArguments { name, resume, workflow, retry_failed, settings, quiet, tasks } =
        arguments;
    let (folder, settings) = match resume {
        Some(wanted) => {
            let folder = FarmFolder::find(&context.state, &wanted)?;
            if folder.record().open.is_some() {
                return Err(farm::FarmError::Open(folder.name().to_owned()).into());
            }
            let settings = folder.record().settings.clone().with(settings);
            check_tries(folder.record().tasks, &settings)?;
            // Before anything is begun; the worker takes the lock for good.
            let _lock = folder.lock()?;
            if retry_failed {
                farm::reopen(&folder, settings.retries.unwrap_or(0))?;
            }
            (folder, settings)
        }
        None => {
            let settings = with_absolute(settings)?;
            if settings.cluster {
                // Before there is anything that would have to be removed.
                farm::cluster_of(&context.state)?;
            }
            let wanted = Wanted { words: &tasks, workflow: workflow.as_deref() };
            (make(context, name.as_deref(), &wanted, settings.clone())?, settings)
        }
    };
    let resume = resume_command(context.asked_dir.as_deref(), folder.name());
    if !quiet {
        let number = folder.record().tasks;
        farm::say(&format!("run {} of {number} tasks", folder.name()));
    }
    farm::guard(&Charge { folder: &folder, settings: &settings, quiet, resume })
}

fn with_absolute(settings: FarmSettings) -> Result<FarmSettings, Failure> {
    let absolute = |path| {
        std::path::absolute(&path)
            .map_err(|error| Failure::of("find the folder for results", error))
    };
    let results = settings.results.map(absolute).transpose()?;
    Ok(FarmSettings { results, ..settings })
}

/// What is to be run: words of the command line, or a workflow.
struct Wanted<'a> {
    words: &'a [std::ffi::OsString],
    workflow: Option<&'a Path>,
}

fn make(
    context: &Context,
    name: Option<&str>,
    wanted: &Wanted<'_>,
    settings: FarmSettings,
) -> Result<FarmFolder, Failure> {
    let directory = std::env::current_dir();
    let directory = directory.map_err(|error| Failure::of("find the working directory", error))?;
    let Wanted { words, workflow } = *wanted;
    let stem = workflow.and_then(Path::file_stem).or_else(|| farm::stem(words));
    let stem = stem.and_then(|stem| stem.to_str()).unwrap_or_default();
    farm::check_results(settings.results.as_deref())?;
    let draft = Draft::new(&context.state, name, stem)?;
    if let Some(file) = workflow {
        let number = farm::collect_workflow(file, draft.path())?;
        check_tries(number, &settings)?;
        return Ok(draft.complete(number, directory, settings)?);
    }
    match farm::collect(words, draft.path())? {
        Collected::Usage(reason) => Err(Failure::Usage(format!("wrong usage: {reason}"))),
        Collected::Tasks(number) => {
            check_tries(number, &settings)?;
            Ok(draft.complete(number, directory, settings)?)
        }
    }
}

fn check_tries(tasks: u32, settings: &FarmSettings) -> Result<(), Failure> {
    Ok(farm::check_tries(tasks, settings.retries.unwrap_or(0))?)
}

fn resume_command(dir: Option<&Path>, name: &str) -> String {
    match dir {
        Some(dir) => format!("ckptd farm run --resume {name} --dir {}", dir.display()),
        None => format!("ckptd farm run --resume {name}"),
    }
}

/// A run in a listing; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    state: &'static str,
    tasks: u32,
    right: u32,
    failed: u32,
    skipped: u32,
    created_at_ms: u64,
    results: String,
}

fn ls(context: &Context, list: ListArguments) -> Result<(), Failure> {
    let complain = |error| eprintln!("ckptd: warning: failed to {error}");
    let mut all = Vec::new();
    for run in FarmFolder::all(&context.state, complain)? {
        let standing = match run.standing() {
            Ok(standing) => standing,
            Err(error) => {
                complain(error);
                continue;
            }
        };
        let record = run.record();
        let is_over = standing.right + standing.failed + standing.skipped >= record.tasks;
        all.push(Listed {
            name: record.name.clone(),
            state: match (run.is_running(), is_over) {
                (true, _) => "running",
                (false, true) => "ended",
                (false, false) => "interrupted",
            },
            tasks: record.tasks,
            right: standing.right,
            failed: standing.failed,
            skipped: standing.skipped,
            created_at_ms: record.created_at_ms,
            results: run.results().display().to_string(),
        });
    }
    if list.json {
        return print_json(&all);
    }
    let now = text::now_ms();
    let heading = ["NAME", "STATE", "AGE", "TASKS", "RIGHT", "FAILED", "SKIPPED"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|run| {
        vec![
            run.name.clone(),
            run.state.to_owned(),
            text::age(run.created_at_ms, now),
            run.tasks.to_string(),
            run.right.to_string(),
            run.failed.to_string(),
            run.skipped.to_string(),
        ]
    }));
    print(&table(&rows))
}

fn rm(context: &Context, wanted: &[String]) -> Result<(), Failure> {
    // All are found before the first is removed, so that a slip removes none.
    let mut runs = Vec::new();
    for name in wanted {
        // What was never completed is none.
        if !FarmFolder::remove_left(&context.state, name)? {
            runs.push(FarmFolder::find(&context.state, name)?);
        }
    }
    for run in runs {
        let _lock = run.lock()?;
        // Whoever is about to add a task to it finds it gone.
        let _gate = run.record().open.map(|_| farm::Gate::wait(run.path())).transpose()?;
        // Where everything was killed, tasks may have lived on, which nobody would find any more.
        farm::end_left(run.path())
            .map_err(farm::FarmError::process("end what is left of the run"))?;
        if run.record().settings.cluster {
            farm::remove_jobs(&run)?;
        }
        run.remove()?;
    }
    Ok(())
}
