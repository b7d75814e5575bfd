//! `ckptd slurm`: a cluster of the nodes of an allocation, for one job.

mod agent;
mod allocation;
mod daemons;

use super::{Context, run};
use crate::cli::{SlurmCommand, SlurmRunArguments};
use crate::failure::Failure;
use crate::jobs::StateDir;
use allocation::Allocation;
use daemons::Daemons;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub fn perform(context: &Context, command: SlurmCommand) -> Result<u8, Failure> {
    match command {
        SlurmCommand::Run(arguments) => run_in_allocation(context, arguments),
        SlurmCommand::Agent { slots } => agent::perform(context, &slots),
    }
}

/// Runs a job on the nodes of the allocation; the coordinator is here, an agent on each node.
fn run_in_allocation(context: &Context, arguments: SlurmRunArguments) -> Result<u8, Failure> {
    if arguments.run.detach {
        let text = "wrong usage: --detach makes no sense here: the cluster of an allocation ends with its job";
        return Err(Failure::Usage(text.to_owned()));
    }
    let allocation = Allocation::of_environment()?;
    let folder = Folder::make(context, &allocation)?;
    let state = StateDir::find(Some(folder.0.clone()))?;
    let inside =
        Context { state, asked_dir: Some(folder.0.clone()), start_agent: context.start_agent };
    let mut daemons = Daemons::start(&allocation, &folder.0)?;
    daemons.wait_for_members(&allocation, arguments.wait)?;
    let status = run::perform(&inside, arguments.run);
    daemons.end();
    status
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
}

/// Makes a folder that must not be there yet: what lies in a folder that all may write to may be another's.
fn private_folder(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("ckptd: {} can't be removed: {error}", self.0.display());
        }
    }
}
