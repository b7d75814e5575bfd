//! The agent of one node of an allocation, as srun starts it.

use super::{must_be_private, private_folder};
use crate::commands::{Context, tell_what_happens};
use crate::failure::Failure;
use crate::spans::Process;
use ckpt_agent::driver::{AgentOptions, Signals, run};
use ckpt_agent::port::Wanted;
use protocol::cluster::{NodeName, host_label};
use std::io::{self, ErrorKind, Read};

/// What an agent says when Slurm has sent SIGTERM, whatever is logged.
pub const ALLOCATION_ENDS: &str = "SIGTERM: Slurm is about to end the allocation";
/// What it says when Slurm has sent the signal that users ask for, without sending it to the script alone.
pub const SIGNALLED: &str = "a signal: Slurm has sent it to all of the allocation";
/// The longest token that is read, in bytes.
const MAX_TOKEN: u64 = 64 * 1024;

/// Joins the coordinator of the token in standard input, and serves until it is told to end. `slots`: those of all nodes of
/// the allocation, in Slurm's order. `spares`: so many of them, the last ones, wait until another is gone.
pub fn perform(context: &Context, slots: &[u32], spares: usize) -> Result<u8, Failure> {
    let failed = |cause: String| Failure::of("run an agent under Slurm", cause);
    let variable = |name: &str| {
        std::env::var(name).map_err(|_| failed(format!("{name} is not set: srun starts this")))
    };
    let index: usize = variable("SLURM_NODEID")?
        .parse()
        .map_err(|_| failed("SLURM_NODEID is no number".to_owned()))?;
    let name: NodeName = host_label(&variable("SLURMD_NODENAME")?)
        .parse()
        .map_err(|error| failed(format!("the node's name: {error}")))?;
    let is_spare = index >= slots.len().saturating_sub(spares);
    let slots = slots.get(index).copied();
    let slots = slots.ok_or_else(|| failed(format!("it has no node number {index}")))?;
    let mut token = String::new();
    let read = io::stdin().lock().take(MAX_TOKEN).read_to_string(&mut token);
    read.map_err(|error| failed(format!("read the token: {error}")))?;
    // Where all nodes have the same folder, each has one of its own in it.
    let folder = context.state.path();
    let made = match private_folder(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => must_be_private(folder),
        made => made,
    };
    made.map_err(|error| failed(format!("make {}: {error}", folder.display())))?;
    let dir = folder.join(name.as_str());
    private_folder(&dir).map_err(|error| failed(format!("make {}: {error}", dir.display())))?;
    let _spans = tell_what_happens(Some(Process::Agent));
    let options = AgentOptions {
        join: Some(token.trim().to_owned()),
        name: Some(name),
        slots: Some(slots),
        spare: is_spare,
        speed: None,
        allow_root: nix::unistd::Uid::effective().is_root(),
        shared: false,
        dir: dir.clone(),
        port: Wanted { host: None, port: None },
        leave_below: None,
        traffic: None,
        signals: Signals::OfAllocation {
            terminated: || eprintln!("ckptd: {ALLOCATION_ENDS}"),
            signalled: || eprintln!("ckptd: {SIGNALLED}"),
        },
        discover: false,
    };
    let ended = run(&options).map_err(|error| Failure::of("run the agent", error));
    let removed = std::fs::remove_dir_all(&dir);
    // The last one of a machine takes what is around it.
    let _ = std::fs::remove_dir(folder);
    ended?;
    removed.map_err(|error| failed(format!("remove {}: {error}", dir.display())))?;
    Ok(0)
}
