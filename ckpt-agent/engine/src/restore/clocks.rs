//! The job's clocks, once all that takes its time has been done. The time namespace that the init has come from was made before anything
//! else, since what a namespace's clocks are off by is fixed when the first process is in it; and they have run on. So there is a second one
//! now, into which all go, each while it has no other thread. What runs on still is the making of threads, and what
//! the job waits for to be let go.

use std::fs::File;

use nix::sched::{CloneFlags, setns, unshare};

use super::super::dump::clocks;
use super::super::error::{EngineError, Result};
use super::super::graph::FileId;
use super::super::job_init::World;
use super::super::job_init::namespaces::set_clocks;
use super::super::objects::{Object, RestoreContext};
use super::super::sys::abi::CLONE_NEWTIME;
use super::super::sys::clone3::SingleThreaded;
use super::{Helper, namespaces};

/// The init's time namespace, where all processes see it.
const TIME: &str = "/proc/1/ns/time";

/// Sets the clocks of the init and of all helpers back to the moment of the image, and begins anew with what was left of timers
/// then. Where the clocks are not the job's own, or can't be set, they stay.
///
/// # Errors
/// Where some would have other clocks than the rest.
pub fn set_back(helpers: &mut [Helper<'_>], context: &RestoreContext<'_>) -> Result<()> {
    let moment = &context.graph.clocks;
    let own = std::process::id() as i32;
    let before = clocks::offsets(own)?;
    if World::of_this_init() != World::Own || before == (0, 0) {
        return Ok(());
    }
    let now = clocks::of_process(own)?;
    let monotonic = before.0 + moment.monotonic_ns - now.monotonic_ns;
    let boottime = before.1 + moment.boottime_ns - now.boottime_ns;
    let new_time = CloneFlags::from_bits_retain(CLONE_NEWTIME);
    if unshare(new_time).is_err() {
        return Ok(());
    }
    set_clocks(monotonic, boottime)?;
    // setns(2) asks for it; what has filled the memory has just ended.
    SingleThreaded::check().map_err(|error| EngineError::system("unshare", "the init", error))?;
    let failed = |error| EngineError::system("open", "the new time namespace", error);
    let namespace = File::open("/proc/self/ns/time_for_children").map_err(failed)?;
    setns(&namespace, new_time)
        .map_err(|errno| EngineError::system("setns", "the new time namespace", errno))?;
    for helper in helpers {
        let mut remote = helper.remote()?;
        let fd = namespaces::open_in(&mut remote, TIME)?;
        namespaces::join(&mut remote, fd, CLONE_NEWTIME as u64)?;
    }
    for (index, file) in context.graph.files.iter().enumerate() {
        let id = FileId(index as u32);
        if let (Object::Timer(timer), true) = (&file.object, context.needs(id)) {
            timer.arm(context.parked(id)?)?;
        }
    }
    Ok(())
}
