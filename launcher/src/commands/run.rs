//! `ckptd run`.

use super::clustered::{self, Prepared};
use super::slurm::step;
use super::telling::{self, ON_A_CLUSTER, WITH_DMTCP};
use super::{Context, dmtcp, is_loud};
use crate::cli::{EngineSetting, RunArguments};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::jobs::{JobFolder, JobSettings};
use crate::mpi::{self, GroupError, Sharing};
use crate::output_file::{self, OutputFile};
use crate::session::detached::{self, Staying};
use crate::session::{self, Begin, Session};
use protocol::launch::{Kept, LaunchSpec};
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

pub fn perform(context: &Context, arguments: RunArguments) -> Result<u8, Failure> {
    let cluster = match arguments.local {
        true => None,
        false => context.cluster_for_a_job()?,
    };
    perform_in(context, arguments, cluster, |_| {})
}

/// Runs the job on this machine, whether it belongs to a cluster or not; `begins` is called before it runs.
#[cfg(feature = "dmtcp")]
pub fn perform_alone(
    context: &Context,
    arguments: RunArguments,
    begins: impl FnOnce(&JobFolder),
) -> Result<u8, Failure> {
    perform_in(context, arguments, None, begins)
}

fn perform_in(
    context: &Context,
    arguments: RunArguments,
    cluster: Option<Cluster>,
    begins: impl FnOnce(&JobFolder),
) -> Result<u8, Failure> {
    super::refuse_lone_last(&arguments.options, arguments.detach)?;
    let program = arguments.command.first().cloned().unwrap_or_default();
    let what = format!("run {}", program.to_string_lossy());
    let directory = std::env::current_dir()
        .map_err(|error| Failure::of(&what, format!("find the working directory: {error}")))?;
    let mut environment: Vec<_> = std::env::vars_os().collect();
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    // Told here, before anything is made: a slip of the pen should leave no job behind.
    let found = find_program(&what, &program, path.as_deref(), &directory)?;
    if let Some(baseline) = arguments.cpu_baseline {
        if arguments.options.engine == EngineSetting::Dmtcp {
            return Err(Failure::Usage(
                "wrong usage: --cpu-baseline is for the native engine: leave it or --engine dmtcp out".into(),
            ));
        }
        baseline.hold(&mut environment);
    }
    let sharing = sharing(&arguments, cluster.is_some())?;
    let kept = arguments.files.kept().map_err(|cause| Failure::of(&what, cause))?;
    if arguments.options.engine == EngineSetting::Dmtcp && kept != Kept::default() {
        return Err(Failure::Usage(
            "wrong usage: --session, --files-limit and --file-check are for the native engine: leave them or --engine \
             dmtcp out"
                .into(),
        ));
    }
    if arguments.options.engine == EngineSetting::Dmtcp {
        if cluster.is_some() {
            eprintln!(
                "ckptd: warning: a job of DMTCP runs on this machine alone, its images are not copied, and it is \
                 lost with the machine: leave --engine out to use the cluster"
            );
        }
        telling::refuse_trace(&arguments.options, WITH_DMTCP)?;
        telling::refuse_calls(&arguments.options)?;
        return dmtcp::engine::run(context, arguments);
    }
    if let Some(cluster) = cluster {
        telling::refuse_trace(&arguments.options, ON_A_CLUSTER)?;
        let launcher = mpi::recognise(&program, &found);
        separate(launcher.as_ref(), sharing, &arguments, &mut environment);
        let prepared = Prepared { launcher, directory, environment, kept, sharing };
        return clustered::run(context, &cluster, arguments, prepared);
    }
    super::refuse_without_cluster(&arguments.options, arguments.local)?;
    let staying = match detached::stay(arguments.detach, &what)? {
        ControlFlow::Continue(staying) => staying,
        ControlFlow::Break(status) => return Ok(status),
    };
    detached::forget(&mut environment);
    let _trace = telling::trace(&what, &arguments.options)?;
    let launcher = mpi::recognise(&program, &found);
    if launcher.is_some() && !arguments.local {
        let nodes = std::env::var("SLURM_JOB_NUM_NODES").ok();
        tell(step::caution_of_nodes(nodes.as_deref()).as_slice(), &arguments);
    }
    let prepared = Prepared { launcher, directory, environment, kept, sharing };
    run_here(context, arguments, prepared, staying, begins)
}

/// Refuses what [`perform`] would refuse, as far as that can be known before there is a cluster.
pub fn refuse_early(command: &[OsString], sharing: Sharing) -> Result<(), Failure> {
    let program = command.first().cloned().unwrap_or_default();
    let what = format!("run {}", program.to_string_lossy());
    let directory = std::env::current_dir().map_err(|error| Failure::of(&what, error))?;
    let path = std::env::var_os("PATH");
    let found = find_program(&what, &program, path.as_deref(), &directory)?;
    match sharing {
        Sharing::Groups(_) if mpi::recognise(&program, &found).is_none() => {
            Err(GroupError::NoLauncher(program.to_string_lossy().into_owned()).into())
        }
        _ => Ok(()),
    }
}

/// On a cluster, where each process may come to be on another machine.
fn separate(
    launcher: Option<&mpi::Found>,
    sharing: Sharing,
    arguments: &RunArguments,
    environment: &mut Vec<(OsString, OsString)>,
) {
    let Some(launcher) = launcher else {
        if sharing != Sharing::Nodes {
            let caution = mpi::separate_within(environment);
            tell(caution.as_slice(), arguments);
        }
        return;
    };
    let reach = mpi::Reach::Cluster;
    let cautions = mpi::separate(launcher, reach, sharing, &arguments.command, environment);
    tell(&cautions, arguments);
}

fn tell(cautions: &[String], arguments: &RunArguments) {
    for text in cautions.iter().filter(|_| !arguments.options.quiet) {
        eprintln!("ckptd: {text}");
    }
}

/// Which ranks are to have memory in common.
fn sharing(arguments: &RunArguments, is_clustered: bool) -> Result<Sharing, GroupError> {
    if arguments.group.is_some() && arguments.options.engine == EngineSetting::Dmtcp {
        return Err(GroupError::Engine);
    }
    if arguments.group.is_some() && !is_clustered {
        return Err(GroupError::NoCluster);
    }
    Sharing::of(arguments.group, arguments.options.keeps_nodes_together())
}

fn find_program(
    what: &str,
    program: &OsStr,
    path: Option<&OsStr>,
    directory: &Path,
) -> Result<PathBuf, Failure> {
    if let Some(found) = mpi::find_program(program, path, directory) {
        return Ok(found);
    }
    let (cause, status) = mpi::why_not_found(program, directory);
    Err(Failure::Program { told: format!("{what}: {cause}"), status })
}

/// Runs the job on this machine alone.
fn run_here(
    context: &Context,
    arguments: RunArguments,
    prepared: Prepared,
    staying: Option<Staying>,
    begins: impl FnOnce(&JobFolder),
) -> Result<u8, Failure> {
    let Prepared { launcher, directory, mut environment, kept, sharing } = prepared;
    let settings = JobSettings::default().with(&arguments.options);
    if let Some(launcher) = launcher {
        let reach = mpi::Reach::this_machine();
        mpi::separate(&launcher, reach, sharing, &arguments.command, &mut environment);
    }
    let program = arguments.command.first().cloned().unwrap_or_default();
    let what = format!("run {}", program.to_string_lossy());
    let output = OutputFile::of(arguments.options.output.as_deref(), &what)?;
    let hooks = context.caller(&arguments.options, &directory, 0);
    let (job, _lock) = context.state.create(
        arguments.name.as_deref(),
        &arguments.command,
        &directory,
        settings,
    )?;
    context.call_about(&job, hooks.as_ref())?;
    let (last, commits) = (arguments.options.last_checkpoint(), arguments.options.commits.clone());
    let held = arguments.options.held.clone();
    let resume = context.resume(arguments.options.comes_back);
    let streams = match staying {
        Some(_) => session::streams_of_nobody(),
        None => session::launch_streams(),
    };
    let launch = LaunchSpec {
        program: arguments.command,
        environment,
        working_directory: directory,
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
        window: streams.window,
        termios: streams.termios,
        kept,
        external: settings.external,
        given: Vec::new(),
    };
    let loud = is_loud(&arguments.options);
    begins(&job);
    let session = Session {
        job: &job,
        settings,
        begin: Begin::Launch(Box::new(launch)),
        loud,
        resume,
        last,
        commits,
        hooks,
        held,
        staying,
    };
    output_file::while_running(output, &job, || session::run(session, context.start_agent))
}
