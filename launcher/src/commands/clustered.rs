//! The commands about jobs, where the machine belongs to a cluster.

use super::{Context, is_loud, print, print_json};
use crate::cli::{
    DaemonsSetting, IntervalSetting, JobOptions, ListArguments, Placement as PlacementOption,
    RestartArguments, RunArguments,
};
use crate::client::foreground::{self, Foreground, InputFrom};
use crate::client::refusal::unexpected;
use crate::cluster::{Cluster, listing};
use crate::failure::Failure;
use crate::mpi;
use crate::output_file::{Follower, OutputFile};
use crate::{progress, session};
use protocol::cluster::NodeName;
use protocol::cluster::client::{Answer, Ask, RestartRequest, RunRequest};
use protocol::cluster::settings::{Daemons, Interval, JobSettings, Placement, Traffic};
use protocol::launch::{External, LaunchSpec, StreamKind};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What `run` found out before it knew where the job is to run.
pub struct Prepared {
    /// What it is if it launches MPI jobs.
    pub launcher: Option<mpi::Found>,
    /// Where it was asked for.
    pub directory: PathBuf,
    /// The environment of the job.
    pub environment: Vec<(OsString, OsString)>,
    /// What of the file system is the job's.
    pub kept: protocol::launch::Kept,
    /// Which ranks have memory in common.
    pub sharing: mpi::Sharing,
}

/// `ckptd run`.
pub fn run(
    context: &Context,
    cluster: &Cluster,
    mut arguments: RunArguments,
    prepared: Prepared,
) -> Result<u8, Failure> {
    let Prepared { launcher, directory, mut environment, kept, sharing } = prepared;
    let program = arguments.command.first().cloned().unwrap_or_default();
    let what = format!("run {}", program.to_string_lossy());
    let settings = changed(JobSettings::default(), &arguments.options)?;
    let settings = JobSettings { cpu_baseline: arguments.cpu_baseline, ..settings };
    let given = match &launcher {
        Some(launcher) => {
            let nodes = cluster.listing(&what, &Ask::Nodes)?;
            let (command, told) = (&mut arguments.command, (&nodes, &settings));
            mpi::launch(launcher, command, &directory, told, sharing, &mut environment)?;
            Vec::new()
        }
        None if matches!(sharing, mpi::Sharing::Groups(_)) => {
            let program = program.to_string_lossy().into_owned();
            return Err(mpi::GroupError::NoLauncher(program).into());
        }
        // It need not start any ranks at all.
        None => {
            let nodes = cluster.listing(&what, &Ask::Nodes).unwrap_or_default();
            mpi::launch_within(&nodes, &settings, &mut environment)
        }
    };
    let (mut launch, input) = launch(arguments.command, environment, directory, arguments.detach);
    launch.kept = kept;
    launch.given = given;
    let request = RunRequest {
        name: arguments.name,
        launch,
        settings,
        detach: arguments.detach,
        anywhere: false,
    };
    let ask = Ask::Run(Box::new(request));
    in_foreground(context, cluster, (what, ask, input), &arguments.options, 0)
}

fn launch(
    program: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    working_directory: PathBuf,
    detach: bool,
) -> (LaunchSpec, InputFrom) {
    let streams = match detach {
        true => session::streams_of_nobody(),
        false => session::launch_streams(),
    };
    let mut launch = LaunchSpec {
        program,
        environment,
        working_directory,
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
        window: streams.window,
        termios: streams.termios,
        kept: protocol::launch::Kept::default(),
        external: External::default(),
        given: Vec::new(),
    };
    if detach {
        return (launch, InputFrom::Nowhere);
    }
    // On another machine a file or device can't be handed over: it is read here.
    if launch.stdin == StreamKind::Inherit {
        if is_null(Path::new("/proc/self/fd/0")) {
            return (launch, InputFrom::Nowhere);
        }
        launch.stdin = StreamKind::Pipe;
    }
    (launch, InputFrom::User)
}

fn is_null(stream: &Path) -> bool {
    std::fs::read_link(stream).is_ok_and(|target| target == Path::new("/dev/null"))
}

/// `ckptd restart`.
pub fn restart(
    context: &Context,
    cluster: &Cluster,
    arguments: &RestartArguments,
) -> Result<u8, Failure> {
    let what = format!("restart {}", arguments.job);
    if arguments.file_check.is_some() {
        let cause = "on a cluster, a job keeps the --file-check that it was run with";
        return Err(Failure::of(&what, cause));
    }
    let ask = Ask::Status { job: Some(arguments.job.clone()) };
    let status = cluster.listing(&what, &ask)?;
    // Its work is done; to do part of it again is hardly what is meant.
    let finished = status["state"] == "ended" && status["end"]["status"]["exited"] == 0;
    if finished && arguments.checkpoint.is_none() && !arguments.force {
        let cause = "it has ended by itself with status 0; to go back all the same: --force";
        return Err(Failure::of(&what, cause));
    }
    let settings = if is_changed(&arguments.options) {
        let settings = protocol::json::of_value(&status["settings"])
            .map_err(|error| Failure::of(&what, format!("read its settings: {error}")))?;
        Some(changed(settings, &arguments.options)?)
    } else {
        None
    };
    let request = RestartRequest {
        job: arguments.job.clone(),
        checkpoint: arguments.checkpoint,
        force: arguments.force,
        settings,
        window: session::window(),
        detach: arguments.detach,
    };
    let input = if arguments.detach { InputFrom::Nowhere } else { InputFrom::User };
    let known = match arguments.options.on.is_empty() {
        true => 0,
        false => events_until_now(cluster, &what, &arguments.job)?,
    };
    let ask = Ask::Restart(Box::new(request));
    in_foreground(context, cluster, (what, ask, input), &arguments.options, known)
}

/// How many events of a job there were: its restart is to call nothing about them.
fn events_until_now(cluster: &Cluster, what: &str, job: &str) -> Result<u64, Failure> {
    let ask = Ask::Events { job: job.to_owned(), known: None };
    match cluster.ask(what, &ask)? {
        Answer::Events { known, .. } => Ok(known),
        other => Err(unexpected(what, &other)),
    }
}

fn in_foreground(
    context: &Context,
    cluster: &Cluster,
    (what, ask, input): (String, Ask, InputFrom),
    options: &JobOptions,
    known: u64,
) -> Result<u8, Failure> {
    let resume = context.resume(options.comes_back);
    let host = cluster.host();
    let (loud, last) = (is_loud(options), options.last_checkpoint());
    let (commits, held) = (options.commits.clone(), options.held.clone());
    let output = OutputFile::of(options.output.as_deref(), &what)?.map(Follower::Waits);
    let hooks = context.caller(options, Path::new("."), known);
    hooks.iter().for_each(|hooks| context.pending.add(hooks));
    foreground::run(Foreground {
        host,
        what,
        ask,
        input,
        loud,
        resume,
        last,
        commits,
        held,
        hooks,
        output,
    })
}

fn is_changed(options: &JobOptions) -> bool {
    let JobOptions {
        interval,
        keep,
        copies,
        external,
        placement,
        max_restarts,
        place,
        daemons,
        no_rewire_connect,
        rehearse,
        trust,
        encrypt_job_traffic,
        ..
    } = options;
    interval.is_some()
        || keep.is_some()
        || copies.is_some()
        || external.is_some()
        || placement.is_some()
        || max_restarts.is_some()
        || daemons.is_some()
        || *no_rewire_connect
        || !place.is_empty()
        || rehearse.is_some()
        || trust.is_some()
        || *encrypt_job_traffic
}

fn changed(settings: JobSettings, options: &JobOptions) -> Result<JobSettings, Failure> {
    Ok(JobSettings {
        interval: match options.interval {
            Some(IntervalSetting::Auto) => Interval::Auto,
            Some(IntervalSetting::Seconds(seconds)) => Interval::Seconds(seconds),
            None => settings.interval,
        },
        keep: options.keep.unwrap_or(settings.keep),
        copies: options.copies.unwrap_or(settings.copies),
        external: options.external.map_or(settings.external, Into::into),
        placement: match options.placement {
            Some(PlacementOption::Process) => Placement::Process,
            Some(PlacementOption::Node) => Placement::Node,
            None => settings.placement,
        },
        daemons: match options.daemons {
            Some(DaemonsSetting::Restore) => Daemons::Restore,
            Some(DaemonsSetting::Fallback) => Daemons::Fallback,
            None => settings.daemons,
        },
        max_restarts: options.max_restarts.unwrap_or(settings.max_restarts),
        rewire_connect: settings.rewire_connect && !options.no_rewire_connect,
        cpu_baseline: settings.cpu_baseline,
        trust: options.trust.map_or(settings.trust, Into::into),
        traffic: match options.encrypt_job_traffic {
            true => Traffic::Encrypted,
            false => settings.traffic,
        },
        rehearse: options.rehearse.unwrap_or(settings.rehearse),
        place: if options.place.is_empty() {
            settings.place
        } else {
            options.place.iter().cloned().collect()
        },
    })
}

/// The cluster's jobs, for `ckptd ls`.
pub fn jobs(cluster: &Cluster) -> Result<serde_json::Value, Failure> {
    cluster.listing("list the jobs", &Ask::Jobs)
}

/// `ckptd status`.
pub fn status(cluster: &Cluster, job: Option<&str>, list: ListArguments) -> Result<(), Failure> {
    let ask = Ask::Status { job: job.map(str::to_owned) };
    let status = cluster.listing("tell how jobs are", &ask)?;
    if list.json {
        return print_json(&status);
    }
    // An older coordinator does not know it by itself.
    let no_jobs = status.as_array().is_some_and(Vec::is_empty);
    let around = no_jobs.then(|| cluster.listing("tell how the cluster is", &Ask::Attention).ok());
    print(&listing::status(&status, around.flatten().as_ref()))
}

/// `ckptd rm`, of one job.
pub fn remove(cluster: &Cluster, job: &str) -> Result<(), Failure> {
    cluster.order(&format!("remove {job}"), &Ask::Remove { job: job.to_owned() })
}

/// What is to be changed about a member.
pub enum Change {
    /// It is turned out.
    Remove(NodeName),
    /// It gets the cluster's key, or not any more.
    Standby(NodeName, bool),
}

impl Change {
    /// By options of which one is given at most.
    pub fn of(
        remove: Option<NodeName>,
        standby: Option<NodeName>,
        no_standby: Option<NodeName>,
    ) -> Option<Self> {
        let standby = standby.map(|node| Self::Standby(node, true));
        let standby = standby.or(no_standby.map(|node| Self::Standby(node, false)));
        remove.map(Self::Remove).or(standby)
    }
}

/// `ckptd nodes`.
pub fn nodes(
    cluster: &Cluster,
    change: Option<Change>,
    list: ListArguments,
) -> Result<(), Failure> {
    match change {
        Some(Change::Remove(node)) => {
            return cluster.order(&format!("remove {node}"), &Ask::RemoveNode { node });
        }
        Some(Change::Standby(node, on)) => {
            let what = format!("change what {node} gets");
            return cluster.order(&what, &Ask::Standby { node, on });
        }
        None => {}
    }
    let nodes = cluster.listing("list the nodes", &Ask::Nodes)?;
    if list.json { print_json(&nodes) } else { print(&listing::nodes(&nodes)) }
}

/// `ckptd leave`.
pub fn leave(cluster: &Cluster, node: Option<NodeName>) -> Result<(), Failure> {
    let who = node.as_ref().map_or("this machine".to_owned(), NodeName::to_string);
    let look = {
        let (cluster, node) = (cluster.clone(), node.clone());
        move || what_is_there(&cluster, node.as_ref()?)
    };
    let ask = Ask::Leave { node: node.clone() };
    progress::meanwhile(look, || cluster.insist(&format!("announce that {who} goes"), &ask))
}

/// What a member still runs.
fn what_is_there(cluster: &Cluster, node: &NodeName) -> Option<String> {
    let listed = cluster.listing("list the nodes", &Ask::Nodes).ok()?;
    let all = listed.as_array()?;
    let member = all.iter().find(|member| member["name"] == node.as_str())?;
    let state = listing::node_state(member);
    Some(match listing::list(member, "instances").len() {
        0 => format!("{node} is {state}; nothing of a job runs there any more"),
        1..=3 => format!("{node} is {state}; still there: {}", listing::words(member, "instances")),
        many => format!("{node} is {state}; {many} parts of jobs are still there"),
    })
}

/// `ckptd drain`.
pub fn drain(cluster: &Cluster, node: NodeName, wait: bool) -> Result<(), Failure> {
    let look = {
        let (cluster, node) = (cluster.clone(), node.clone());
        move || what_is_there(&cluster, &node)
    };
    let ask = Ask::Drain { node: node.clone(), wait };
    progress::meanwhile(look, || cluster.insist(&format!("drain {node}"), &ask))
}

/// `ckptd uncordon`.
pub fn uncordon(cluster: &Cluster, node: NodeName) -> Result<(), Failure> {
    cluster.insist(&format!("uncordon {node}"), &Ask::Uncordon { node })
}
