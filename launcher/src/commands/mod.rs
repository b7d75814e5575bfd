//! One file a command.

mod adopt;
mod agent;
mod attach;
mod audit;
mod checkpoint;
mod clustered;
#[cfg(feature = "manual")]
mod completions;
#[cfg(feature = "configuration")]
mod config;
mod coordinator;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "dmtcp")]
mod dmtcp;
#[cfg(not(feature = "dmtcp"))]
#[path = "without_dmtcp.rs"]
mod dmtcp;
mod doctor;
mod export;
mod farm;
mod gc;
#[cfg(feature = "manual")]
mod help;
#[cfg(feature = "http")]
mod http;
#[cfg(not(feature = "http"))]
#[path = "without_http.rs"]
mod http;
mod images;
mod import;
mod inspect;
#[cfg(test)]
mod listing_tests;
mod login;
mod logs;
mod ls;
#[cfg(feature = "manual")]
mod man;
mod one_line;
mod rehearse;
mod report;
mod restart;
mod rm;
mod rsh;
mod run;
mod slurm;
mod status;
mod stop;
mod store;
pub mod summary;
mod target;
mod telling;
mod token;
mod top;
mod verify;

#[cfg(feature = "manual")]
pub use completions::answer as complete;
pub use dmtcp::called;
pub use one_line::escaped;

use crate::agent::StartAgent;
use crate::cli::{Cli, Command, JobOptions};
use crate::client::resume::{ComesBack, Resume};
use crate::cluster::{Cluster, coordinator_here};
use crate::failure::Failure;
use crate::hooks::{self, Caller, Pending};
use crate::jobs::{JobFolder, StateDir};
use crate::out::{print, print_json, resume_command};
use crate::{output_file, progress};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use telling::tell_what_happens;

/// What every command needs.
struct Context {
    state: StateDir,
    /// The folder, where it was given on the command line.
    asked_dir: Option<PathBuf>,
    start_agent: StartAgent,
    /// Commands that are still to be called.
    pending: Pending,
}

impl Context {
    /// The command by which a job is restarted, as the user would have to type it here.
    fn resume(&self, comes_back: ComesBack) -> Resume {
        Resume { comes_back, dir: self.asked_dir.clone() }
    }

    /// The commands of these options, which are called in that folder, or here where it is gone; they find jobs where this
    /// command has them.
    fn caller(&self, options: &JobOptions, folder: &Path, known: u64) -> Option<Arc<Caller>> {
        let folder = if folder.is_dir() { folder } else { Path::new(".") };
        Caller::of(&options.on, folder, self.asked_dir.clone(), known)
    }

    /// Starts what calls commands about a job that is about to run on this machine alone.
    fn call_about(&self, job: &JobFolder, hooks: Option<&Arc<Caller>>) -> Result<(), Failure> {
        let Some(hooks) = hooks else { return Ok(()) };
        hooks.start_here(job)?;
        self.pending.add(hooks);
        Ok(())
    }

    fn resume_command(&self, name: &str) -> String {
        resume_command(self.asked_dir.as_deref(), name)
    }

    /// The cluster that this machine belongs to, if any.
    fn cluster(&self) -> Result<Option<Cluster>, Failure> {
        Cluster::find(&self.state, self.is_asked_dir())
    }

    /// The same, for a job that begins: one that is meant for a cluster is not to run on this machine alone because the
    /// agent is not there.
    fn cluster_for_a_job(&self) -> Result<Option<Cluster>, Failure> {
        Cluster::find_if_joined(&self.state, self.is_asked_dir())
    }

    /// Whether the folder was asked for, and is not the usual one.
    fn is_asked_dir(&self) -> bool {
        self.asked_dir.is_some() || std::env::var_os("CKPTD_DIR").is_some()
    }

    /// The same, for a command about a job: one that was run on this machine alone, before or
    /// beside the cluster, is found by its whole name.
    fn cluster_of(&self, job: &str) -> Result<Option<Cluster>, Failure> {
        match self.state.find_job(job) {
            Ok(own) if own.name() == job || own.id() == job => Ok(None),
            _ => self.cluster(),
        }
    }

    /// The folder of this machine's coordinator, unless another one was given.
    fn coordinator(&self, given: Option<PathBuf>) -> PathBuf {
        given.unwrap_or_else(|| coordinator_here(self.state.path(), self.is_asked_dir()))
    }

    /// The cluster, for an operator's command: by the coordinator's own socket, where it is on this machine and this user is
    /// an operator there, since an agent beside it may not speak for one.
    fn operators_cluster(&self, what: &str, given: Option<&PathBuf>) -> Result<Cluster, Failure> {
        match Cluster::of_coordinator(&self.coordinator(given.cloned())) {
            Err(error) if given.is_some() => Err(error),
            Ok(own) if given.is_some() || own.obeys_as_operator() => Ok(own),
            Ok(_) | Err(_) => self.need_cluster(what),
        }
    }

    /// The cluster, for a command that makes no sense without.
    fn need_cluster(&self, what: &str) -> Result<Cluster, Failure> {
        self.cluster()?.ok_or_else(|| {
            Failure::of(
                what,
                "this machine belongs to no cluster: 'ckptd agent --join-file FILE' joins one",
            )
        })
    }
}

/// Refuses options that mean something on a cluster only, where there is none.
fn refuse_without_cluster(options: &JobOptions, local: bool) -> Result<(), Failure> {
    let given = [
        (options.max_restarts.is_some(), "--max-restarts"),
        (!options.place.is_empty(), "--place"),
        (options.trust.is_some(), "--trust"),
        (options.encrypt_job_traffic, "--encrypt-job-traffic"),
        (options.daemons.is_some(), "--daemons"),
    ];
    match given.iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, option)) if local => Err(Failure::Usage(format!(
            "wrong usage: {option} is for jobs on a cluster: leave --local out"
        ))),
        Some((_, option)) => Err(Failure::Usage(format!(
            "wrong usage: {option} is for jobs on a cluster, and this machine belongs to none: \
             'ckptd agent --join-file FILE' joins one"
        ))),
    }
}

/// Refuses what would mean nothing: a status for an event that is not asked for, an event that nobody waits for.
fn refuse_lone_last(options: &JobOptions, detach: bool) -> Result<(), Failure> {
    let is_asked = options.checkpoint_on.is_some() || options.last.is_some();
    let text = match (is_asked, options.then_exit) {
        (false, Some(_)) => "--then-exit goes with --checkpoint-on",
        (true, _) if detach => "--checkpoint-on is for a command that stays: leave --detach out",
        _ => return Ok(()),
    };
    Err(Failure::Usage(format!("wrong usage: {text}")))
}

/// Whether a session tells of each checkpoint.
fn is_loud(options: &JobOptions) -> bool {
    options.verbose || (std::io::stderr().is_terminal() && !options.quiet)
}

/// Whether a command shows what a job writes, so that its standard error may be the job's.
fn shows_a_job(command: &Command) -> bool {
    matches!(
        command,
        Command::Run(_)
            | Command::Slurm(_)
            | Command::Farm(_)
            | Command::Adopt(_)
            | Command::Restart(_)
            | Command::Attach { .. }
    )
}

/// Does what the command line says; the exit status. `pending`: what is still to be called then.
pub fn perform(cli: Cli, start_agent: StartAgent, pending: &Pending) -> Result<u8, Failure> {
    let state = StateDir::find(cli.dir.clone())?;
    let context = Context { state, asked_dir: cli.dir, start_agent, pending: pending.clone() };
    if shows_a_job(&cli.command) {
        progress::on_terminals_alone();
    }
    match cli.command {
        Command::Run(arguments) => return store::kept::perform(&context, arguments),
        Command::Slurm(command) => return slurm::perform(&context, command),
        Command::Farm(command) => return farm::perform(&context, command),
        Command::Adopt(arguments) => return adopt::perform(&context, &arguments),
        Command::Restart(arguments) => return restart::perform(&context, &arguments),
        Command::Export(arguments) => return export::perform(&context, &arguments),
        Command::Import(arguments) => return import::perform(&context, &arguments),
        Command::Top { every } => return top::perform(&context, every),
        #[cfg(feature = "demo")]
        Command::Demo => return demo::perform(),
        #[cfg(feature = "demo")]
        Command::DemoPart(part) => return demo::part(part),
        #[cfg(feature = "manual")]
        Command::Help { words } => help::perform(&words)?,
        #[cfg(feature = "manual")]
        Command::Completions { shell } => completions::completions(shell)?,
        #[cfg(feature = "manual")]
        Command::Man { folder } => man::perform(&folder)?,
        #[cfg(feature = "configuration")]
        Command::Config(command) => config::perform(command)?,
        Command::Doctor { mpi: Some(launcher), list, .. } => return doctor::mpi(&launcher, list),
        Command::Doctor { engine, list, .. } => return doctor::perform(&context, engine, list),
        Command::Verify { job, rehearse: true, list } => {
            return rehearse::perform(&context, &job, list);
        }
        Command::Verify { job, rehearse: false, list } => {
            return verify::perform(&context, &job, list);
        }
        Command::CopyOutput { socket, job, file } => output_file::follow(socket, &job, &file)?,
        Command::CallCommands(calling) => hooks::perform(calling)?,
        #[cfg(feature = "webhooks")]
        Command::SendEvent => hooks::send_event()?,
        Command::Logs(arguments) => logs::perform(&context, &arguments)?,
        Command::Report { job, to } => report::perform(&context, &job, to)?,
        Command::Attach { job } => return attach::perform(&context, &job),
        Command::Rsh { node, command } => return rsh::perform(&context, &node, &command),
        Command::Coordinator(arguments) => coordinator::perform(&context, arguments)?,
        Command::Token(arguments) => token::perform(&context, arguments)?,
        #[cfg(feature = "http")]
        Command::Page(arguments) => http::perform(&context, arguments)?,
        Command::Login(arguments) => login::perform(&context, *arguments)?,
        Command::Logout(arguments) => login::end(&context, &arguments)?,
        Command::Audit(arguments) => audit::perform(&context, &arguments)?,
        Command::Agent(arguments) => agent::perform(&context, arguments)?,
        Command::Nodes { remove, standby, no_standby, list } => {
            let change = clustered::Change::of(remove, standby, no_standby);
            let cluster = match &change {
                Some(_) => context.operators_cluster("change a node", None)?,
                None => context.need_cluster("list the nodes")?,
            };
            clustered::nodes(&cluster, change, list)?;
        }
        Command::Leave { node } => {
            let what = "announce a departure";
            let cluster = match &node {
                Some(_) => context.operators_cluster(what, None)?,
                None => context.need_cluster(what)?,
            };
            clustered::leave(&cluster, node)?;
        }
        Command::Drain { node, no_wait } => {
            clustered::drain(&context.operators_cluster("drain a node", None)?, node, !no_wait)?;
        }
        Command::Uncordon { node } => {
            clustered::uncordon(&context.operators_cluster("uncordon a node", None)?, node)?;
        }
        Command::Checkpoint { job } => checkpoint::perform(&context, &job)?,
        Command::Stop { job, checkpoint } => stop::perform(&context, &job, checkpoint)?,
        Command::Ls(list) => ls::perform(&context, list)?,
        Command::Status { job, list } => status::perform(&context, job.as_deref(), list)?,
        Command::Inspect(arguments) => inspect::perform(&context, &arguments)?,
        Command::Gc { job, list } => gc::perform(&context, job.as_deref(), list)?,
        Command::Rm(arguments) => rm::perform(&context, &arguments)?,
    }
    Ok(0)
}
