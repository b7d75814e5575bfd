//! `ckptd farm submit`, `start`, `stop`, `cancel` and `retry`.

use super::{Context, print};
use crate::cli::{FarmSettings, StartArguments, SubmitArguments};
use crate::failure::Failure;
use crate::farm::{
    self, Draft, Ends, FarmError, FarmFolder, Open, Reply, Request, Submission, change_apart,
};
use crate::{EXIT_FAILED, INNER_CALL};
use ckptd_farm::{Event, Limits, Task};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// How long a farm waits for tasks where nothing else is said.
const IDLE: Duration = Duration::from_secs(60);
/// How long somebody else may take to make a farm's folder.
const MAKING: Duration = Duration::from_secs(20);
/// How long it may take until a worker has begun or ended, and a task has.
const LONGEST: Duration = Duration::from_secs(150);
/// A worker looks by itself for what is there when it begins; tasks that somebody adds at the moment may not be durable.
pub const NO_TASK: u32 = 0;
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(10);

/// An open farm that is there.
///
/// # Errors
/// Where there is none of that name.
pub fn find(context: &Context, name: &str) -> Result<FarmFolder, FarmError> {
    let folder = match FarmFolder::find(&context.state, name) {
        Err(FarmError::Unknown(name)) => return Err(FarmError::NoFarm(name)),
        found => found?,
    };
    match folder.record().open {
        Some(_) => Ok(folder),
        None => Err(FarmError::NotOpen(folder.name().to_owned())),
    }
}

/// The same, or a new one that is run like that; whether it is new.
fn find_or_make(
    context: &Context,
    name: &str,
    settings: &FarmSettings,
    idle: Duration,
) -> Result<(FarmFolder, bool), FarmError> {
    let since = Instant::now();
    loop {
        match find(context, name) {
            Err(FarmError::NoFarm(_)) => {}
            found => return found.map(|folder| (folder, false)),
        }
        match Draft::new(&context.state, Some(name), name) {
            Ok(draft) => {
                let folder = draft.complete_open(settings.clone(), Open { idle })?;
                return Ok((folder, true));
            }
            // Another one makes it at this moment.
            Err(FarmError::NameTaken(_)) if since.elapsed() < MAKING => std::thread::sleep(LOOK),
            Err(error) => return Err(error),
        }
    }
}

pub fn submit(context: &Context, arguments: SubmitArguments) -> Result<(), Failure> {
    let (folder, task) = add(context, arguments)?;
    // It is there, so whoever does not see its number and submits it once more would have it twice.
    print(&format!("{}\n", task.0))?;
    begin(&folder, task);
    Ok(())
}

/// Adds a task to a farm, which is made where there is none.
///
/// # Errors
/// Where that can't be done.
pub fn add(context: &Context, arguments: SubmitArguments) -> Result<(FarmFolder, Task), Failure> {
    let SubmitArguments { farm, jobs, timeout, retries, command } = arguments;
    let directory = std::env::current_dir();
    let directory = directory.map_err(|error| Failure::of("find the working directory", error))?;
    let environment = std::env::vars_os().filter(|(name, _)| name != INNER_CALL);
    let environment = environment.collect();
    let submission = Submission { directory, words: command, environment };
    let limits = Limits { timeout, retries };
    let settings = FarmSettings { jobs, ..FarmSettings::default() };
    loop {
        let (folder, is_new) = find_or_make(context, &farm, &settings, IDLE)?;
        let now = folder.record().settings.jobs;
        if let (false, Some(jobs)) = (is_new, jobs.filter(|_| now != jobs)) {
            // It may stand in a configuration file.
            let way = format!("'ckptd farm start --jobs {jobs} {farm}' changes that");
            farm::say(&format!(
                "warning: --jobs {jobs} is for a new farm, and {farm} is there; {way}"
            ));
        }
        match farm::submit(folder.path(), &submission, limits) {
            Ok(task) => return Ok((folder, task)),
            // Somebody has removed it meanwhile.
            Err(_) if !folder.path().exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether this process is a task of that farm, or of one's making, which has not ended: what a task has left in the
/// background is none.
pub fn is_within(context: &Context, name: &str) -> bool {
    let (Some(folder), Ok(task)) = (std::env::var_os(farm::MARK), std::env::var(farm::TASK)) else {
        return false;
    };
    let (Ok(found), Ok(task)) = (find(context, name), task.parse()) else { return false };
    let own = std::fs::metadata(folder).map(|own| (own.dev(), own.ino()));
    if !own.is_ok_and(|own| found.identity() == Some(own)) {
        return false;
    }
    let mut ends = Ends::of(&found);
    ends.read().is_ok() && ends.end(Task(task)).is_none()
}

/// Sees to it that a farm runs that task.
pub fn begin(folder: &FarmFolder, task: Task) {
    if let Err(error) = farm::begin(folder, task.0) {
        farm::say(&format!("warning: failed to {error}; task {} waits until then", task.0));
    }
}

pub fn start(context: &Context, arguments: StartArguments) -> Result<(), Failure> {
    let StartArguments { farm, jobs, checkpoint, cluster, idle, unless_stopped } = arguments;
    if unless_stopped {
        return Ok(farm::go_on(&find(context, &farm)?)?);
    }
    if cluster {
        farm::cluster_of(&context.state)?;
    }
    let settings = FarmSettings { jobs, checkpoint, cluster, ..FarmSettings::default() };
    let (mut folder, is_new) = find_or_make(context, &farm, &settings, idle.unwrap_or(IDLE))?;
    if cluster && !folder.record().settings.cluster {
        let name = folder.name();
        return Err(FarmError::Refused(format!(
            "run tasks of {name} on the cluster: it runs on this machine; another name begins another farm"
        ))
        .into());
    }
    let settings = FarmSettings { cluster: false, ..settings };
    if !is_new && (settings != FarmSettings::default() || idle.is_some()) {
        change(&mut folder, settings, idle)?;
    }
    Ok(farm::begin(&folder, NO_TASK)?)
}

/// Has a farm run otherwise from now on.
fn change(
    folder: &mut FarmFolder,
    settings: FarmSettings,
    idle: Option<Duration>,
) -> Result<(), FarmError> {
    let record = folder.record();
    let is_so = record.settings.clone().with(settings.clone()) == record.settings
        && idle.is_none_or(|idle| record.open.is_some_and(|open| open.idle == idle));
    if is_so {
        return Ok(());
    }
    let since = Instant::now();
    let name = folder.name().to_owned();
    loop {
        match folder.lock() {
            Ok(_lock) => {
                let settings = folder.record().settings.clone().with(settings);
                let open =
                    folder.record().open.map(|open| Open { idle: idle.unwrap_or(open.idle) });
                return folder.change_open(settings, open);
            }
            Err(FarmError::Running(_)) if since.elapsed() < LONGEST => {}
            Err(error) => return Err(error),
        }
        if settings.checkpoint.is_some() || idle.is_some() {
            return Err(FarmError::Refused(format!(
                "change --checkpoint or --idle of {name}: it is running; 'ckptd farm stop {name}' ends it first"
            )));
        }
        let Some(jobs) = settings.jobs else { return Ok(()) };
        match farm::ask(folder, Request::Slots { jobs })? {
            Some(Reply::Refused { reason }) => return Err(FarmError::Refused(reason)),
            Some(Reply::Done {}) => return Ok(()),
            // It begins or ends.
            _ => std::thread::sleep(LOOK),
        }
    }
}

pub fn stop(context: &Context, name: &str, now: bool) -> Result<(), Failure> {
    let folder = find(context, name)?;
    // Before it ends: who waits for its tasks begins it again otherwise.
    farm::note_stop(&folder)?;
    let since = Instant::now();
    let mut was_running = false;
    loop {
        was_running |= folder.is_running();
        match farm::ask(&folder, Request::Stop { now })? {
            Some(Reply::Refused { reason }) => return Err(FarmError::Refused(reason).into()),
            Some(_) => {
                // What was submitted meanwhile has ended with it: the stop came last.
                farm::note_stop(&folder)?;
                return Ok(farm::until_gone(&folder)?);
            }
            None if !folder.is_running() => {
                // One that has nothing to do may be gone before it has answered.
                if !was_running {
                    farm::say(&format!("the farm {name} is not running"));
                }
                return Ok(());
            }
            // It begins or ends.
            None if since.elapsed() < LONGEST => std::thread::sleep(LOOK),
            None => return Err(FarmError::Running(name.to_owned()).into()),
        }
    }
}

pub fn cancel(context: &Context, name: &str, tasks: &[u32]) -> Result<u8, Failure> {
    let folder = find(context, name)?;
    let wish = |task| (Request::Cancel { task }, Event::Cancel(Task(task)));
    let mut asked = Vec::new();
    let mut status = 0;
    // Those behind come first: one that waits is not to begin in the place of one that ends.
    let tasks: BTreeSet<u32> = tasks.iter().copied().collect();
    for task in tasks.iter().rev() {
        match want(&folder, Task(*task), wish(*task)) {
            Ok(()) => asked.push(Task(*task)),
            Err(error) => {
                farm::say(&format!("failed to {error}"));
                status = EXIT_FAILED;
            }
        }
    }
    let mut ends = Ends::of(&folder);
    let since = Instant::now();
    loop {
        // First: whoever has recorded an end may be gone right then.
        let is_running = folder.is_running();
        ends.read()?;
        asked.retain(|task| ends.end(*task).is_none());
        let Some(task) = asked.first().copied() else { return Ok(status) };
        if since.elapsed() > LONGEST {
            let text = format!("cancel task {} of {name}: it does not end", task.0);
            return Err(FarmError::Refused(text).into());
        }
        if !is_running {
            // Everything was killed before the task had ended.
            want(&folder, task, wish(task.0))?;
        }
        std::thread::sleep(LOOK);
    }
}

pub fn retry(context: &Context, name: &str, tasks: &[u32]) -> Result<u8, Failure> {
    let folder = find(context, name)?;
    let mut status = 0;
    for task in tasks {
        let wish = (Request::Retry { task: *task }, Event::Retry(Task(*task)));
        if let Err(error) = want(&folder, Task(*task), wish) {
            farm::say(&format!("failed to {error}"));
            status = EXIT_FAILED;
        }
    }
    farm::begin(&folder, NO_TASK)?;
    Ok(status)
}

/// Has the worker do something about a task, or does it where there is none.
fn want(folder: &FarmFolder, task: Task, wish: (Request, Event)) -> Result<(), FarmError> {
    let since = Instant::now();
    loop {
        match farm::ask(folder, wish.0)? {
            Some(Reply::Done {}) => return Ok(()),
            Some(Reply::Refused { reason }) => return Err(FarmError::Refused(reason)),
            Some(Reply::Ending {} | Reply::Status { .. }) => {}
            None => match change_apart(folder, task, wish.1.clone()) {
                Err(FarmError::Running(_)) => {}
                done => return done,
            },
        }
        if since.elapsed() > LONGEST {
            return Err(FarmError::Running(folder.name().to_owned()));
        }
        std::thread::sleep(LOOK);
    }
}
