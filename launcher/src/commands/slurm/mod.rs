//! `ckptd slurm`: a cluster of the nodes of an allocation, for one job.

mod agent;
mod allocated;
mod allocation;
mod daemons;
mod ending;
mod guard;
mod notice;
pub mod step;
mod store;

use super::store::kept::Awaited;
use super::store::{Store, kept};
use super::{Context, run};
use crate::cli::{EngineSetting, RunArguments, SlurmCommand, SlurmRunArguments};
use crate::client::last_checkpoint::LastCheckpoint;
use crate::client::resume::ComesBack;
use crate::failure::Failure;
use crate::interrupts::{Held, Interrupts};
use crate::jobs::StateDir;
use crate::mpi::Sharing;
use allocated::{End, run_from};
use allocation::Allocation;
use daemons::Daemons;
use protocol::cluster::host_label;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub fn perform(context: &Context, command: SlurmCommand) -> Result<u8, Failure> {
    match command {
        SlurmCommand::Run(arguments) => run_in_allocation(context, *arguments),
        SlurmCommand::Agent { slots, spare } => agent::perform(context, &slots, spare),
        SlurmCommand::Guard => guard::perform(context),
    }
}

/// Runs a job on the nodes of the allocation; the coordinator is here, an agent on each node.
fn run_in_allocation(context: &Context, mut arguments: SlurmRunArguments) -> Result<u8, Failure> {
    step::refuse_several()?;
    refuse_options(&arguments.run)?;
    // Told before anything is started.
    let sharing = Sharing::of(arguments.run.group, arguments.run.options.keeps_nodes_together())?;
    let allocation = Allocation::of_environment()?;
    if !allocation.lost.is_empty() {
        eprintln!(
            "ckptd: warning: {}: no longer in the allocation; nodes that are left: {}",
            allocation.lost.join(", "),
            allocation.nodes.len()
        );
    }
    if arguments.spare >= allocation.nodes.len() {
        let nodes = allocation.nodes.len();
        return Err(Failure::Usage(format!(
            "wrong usage: --spare {} leaves none of the allocation's {nodes} nodes to the job",
            arguments.spare
        )));
    }
    if let Some(ranks) = arguments.ranks {
        let by = ["mpirun".into(), "-n".into(), ranks.to_string().into()];
        arguments.run.command.splice(0..0, by);
    }
    // What a store has goes on with the command that it was run with.
    if arguments.run.store.store.is_none() {
        run::refuse_early(&arguments.run.command, sharing)?;
    }
    // Without a store, what is told at the end is for the job, unless it is asked for.
    let kept = arguments.run.store.take();
    let is_awaited = kept.store.is_some() || arguments.run.options.checkpoint_on.is_some();
    let awaited = Awaited::of(&arguments.run.options);
    if is_awaited {
        arguments.run.options.last = Some(awaited.last.clone());
    }
    // Until the job is there, what comes ends all in order.
    let mut interrupts = if is_awaited { awaited.hold() } else { Interrupts::hold() }?;
    let store = store::open(&kept, arguments.run.name.as_deref(), &interrupts);
    let (requeues, last) = (arguments.requeue, &awaited.last);
    let end = match (store, interrupts.came()) {
        (_, Some(signal)) => End::Of(kept::End::At(signal)),
        (Err(failure), None) => return Err(failure),
        (Ok(store), None) => run_on(context, &allocation, arguments, store, last, interrupts)?,
    };
    let (status, is_told) = match end {
        End::Of(kept::End::At(came)) => {
            (Ok(awaited.status_at(came)), is_awaited && awaited.is(came))
        }
        End::Of(kept::End::Of(status)) => (status, last.is_taken()),
        // Who cancels a job sends the same signals as who preempts it.
        End::CutOff(status) => (status, last.is_taken() || allocation.is_running()),
        End::Unkept(status) => {
            if requeues {
                eprintln!(
                    "ckptd: the job is not put into the queue again: it would begin anew, as the store has nothing of it"
                );
            }
            (status, false)
        }
    };
    if requeues && is_told {
        requeue(&allocation)?;
    }
    status
}

/// Starts daemons on the nodes, and runs the job there.
fn run_on(
    context: &Context,
    allocation: &Allocation,
    mut arguments: SlurmRunArguments,
    store: Option<Store>,
    last: &LastCheckpoint,
    mut interrupts: Interrupts,
) -> Result<End, Failure> {
    let folder = Folder::make(context, allocation)?;
    let mut daemons = Daemons::start(allocation, arguments.spare, &folder.0, &interrupts)?;
    if let Some(came) = daemons.wait_for_members(allocation, arguments.wait, &mut interrupts)? {
        return Ok(End::Of(kept::End::At(came)));
    }
    let inside = folder.inside(context)?;
    let end = match store.map(Arc::new) {
        Some(store) => {
            run_from(&inside, &store, (arguments.run, interrupts), last, daemons.agents_log())
        }
        None => {
            arguments.run.options.held = Held::of(interrupts);
            arguments.run.options.comes_back = ComesBack::Never;
            End::Of(kept::End::Of(run::perform(&inside, arguments.run)))
        }
    };
    if end.is_failure() {
        eprint!("{}", daemons.said());
    }
    Ok(end)
}

/// What makes no sense where the cluster ends with its job.
fn refuse_options(run: &RunArguments) -> Result<(), Failure> {
    let program = run.command.first().map(Path::new).and_then(Path::file_name);
    let text = if program == Some("srun".as_ref()) {
        "srun starts ranks by Slurm's own daemons, which can't be restarted elsewhere: use mpirun, or -n N without srun"
    } else if run.detach {
        "--detach makes no sense here: the cluster of an allocation ends with its job"
    } else if run.local {
        "the job runs on the nodes of the allocation: leave --local out"
    } else if run.options.engine != EngineSetting::Native {
        "a job of DMTCP runs on one node alone: leave --engine out"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(format!("wrong usage: {text}")))
}

/// Puts the batch job into the queue again, which ends this one.
fn requeue(allocation: &Allocation) -> Result<(), Failure> {
    let what = format!("put job {} into the queue again", allocation.id());
    let asked = Command::new("scontrol").args(["requeue", allocation.id()]).output();
    let asked = asked.map_err(|error| Failure::of(&what, error))?;
    if asked.status.success() {
        return Ok(());
    }
    Err(Failure::of(what, String::from_utf8_lossy(&asked.stderr).trim()))
}

/// A folder of this user's alone; it goes when the job has ended.
struct Folder(PathBuf);

impl Folder {
    fn make(context: &Context, allocation: &Allocation) -> Result<Self, Failure> {
        let base = match &context.asked_dir {
            Some(dir) => dir.clone(),
            None => std::env::temp_dir(),
        };
        // Several runs of one allocation are possible.
        let name = format!("ckptd-slurm-{}-{}", allocation.job, std::process::id());
        let folder = base.join(name);
        let made = private_folder(&folder);
        made.map_err(|error| Failure::of(format!("make {}", folder.display()), error))?;
        Ok(Self(folder))
    }

    /// Commands by the agent of this machine, through which images are read; where that has none, by the coordinator.
    fn inside(&self, context: &Context) -> Result<Context, Failure> {
        let agents = std::env::var("SLURMD_NODENAME").map(|name| self.0.join(host_label(&name)));
        let dir = agents.ok().filter(|dir| dir.is_dir()).unwrap_or_else(|| self.0.clone());
        let state = StateDir::find(Some(dir.clone()))?;
        let (start_agent, pending) = (context.start_agent, context.pending.clone());
        Ok(Context { state, asked_dir: Some(dir), start_agent, pending })
    }
}

/// Makes a folder that must not be there yet: what lies in a folder that all may write to may be another's.
fn private_folder(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Refuses a folder that is there already, unless it is this user's alone: where all may write, anybody could have made it.
fn must_be_private(folder: &Path) -> io::Result<()> {
    let found = folder.symlink_metadata()?;
    let is_own = found.uid() == nix::unistd::Uid::effective().as_raw();
    if found.is_dir() && is_own && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::other("it is there already, and not this user's alone"))
}

/// Removes the folder, once nobody uses it any more.
fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        let _ = writeln!(io::stderr(), "ckptd: {} can't be removed: {error}", folder.display());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_folder_of_ones_own_is_used() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("folder");
        private_folder(&folder).unwrap();
        must_be_private(&folder).unwrap();
        private_folder(&folder).unwrap_err();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o770)).unwrap();
        must_be_private(&folder).unwrap_err();
        let link = base.path().join("link");
        symlink(base.path(), &link).unwrap();
        must_be_private(&link).unwrap_err();
    }
}
