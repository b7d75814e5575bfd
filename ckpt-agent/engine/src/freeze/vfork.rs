//! Threads that wait in vfork(2): such a thread stops only once its child has called exec or has ended.

use std::time::Duration;

use super::super::error::{EngineError, Refusal, Result};
use super::super::proc::{children, innermost_number, status_of, thread_state};
use super::super::sys::kcmp::{Resource, share};

/// Whether a thread is in a wait that no stop ends, as in vfork (state D, proc_pid_stat(5)).
pub(super) fn waits_uninterruptibly(pid: i32, tid: i32) -> Result<bool> {
    Ok(thread_state(pid, tid)? == Some('D'))
}

/// The refusal of a thread that has not stopped within `limit`, or (zero) is not waited for, if it waits in vfork: it has a
/// child in its memory, which runs on and may do so for ever. `None`: it waits for something else, or the kernel does not
/// tell (kcmp(2)).
pub(super) fn refusal(pid: i32, tid: i32, limit: Duration) -> Option<EngineError> {
    if !waits_uninterruptibly(pid, tid).ok()? {
        return None;
    }
    let children = children(pid, tid).ok()??;
    let in_its_memory = |child: &i32| share(pid, *child, Resource::Memory) == Some(true);
    let child = status_of(children.into_iter().find(in_its_memory)?).ok()?;
    let parent = status_of(pid).ok()?;
    let within = match limit.as_millis() {
        0 => "yet".to_owned(),
        limit => format!("within {limit} ms"),
    };
    let what = format!(
        "waits in vfork(2) for process {} ({}), which has neither executed a program nor ended {within}",
        innermost_number(&child),
        child.name,
    );
    Some(EngineError::RefusedProcess {
        pid: innermost_number(&parent),
        comm: parent.name,
        refusal: Refusal::new(
            what,
            "use fork(2) for a child that does more, or try again once it has",
        ),
    })
}
