//! Puts threads into their sandboxes again (seccomp(2)), which are suspended until the threads are let go: what is injected
//! afterwards is not filtered.

use super::super::arch::words::{WORD, to_words};
use super::super::error::{EngineError, Result};
use super::super::graph::{ProcessImage, Sandbox, SandboxFilter, from_hex};
use super::super::trace::{Remote, Scratch, StoppedThread};
use super::image::Processes;

/// SECCOMP_SET_MODE_FILTER
const SET_FILTER: u64 = 1;
/// SECCOMP_FILTER_FLAG_TSYNC: for all threads of the process.
const OF_ALL: u64 = 1;
/// SECCOMP_FILTER_FLAG_LOG
const LOG: u64 = 2;
/// SECCOMP_FILTER_FLAG_SPEC_ALLOW: what the processor may guess is restored by itself.
const LET_GUESS: u64 = 4;
/// Bytes of an instruction, and how many a filter may have (BPF_MAXINSNS).
const INSTRUCTION: usize = 8;
const LONGEST: usize = 4096;

/// Whether any thread of a job has a sandbox.
pub fn are_any(processes: &Processes) -> bool {
    let threads = processes.values().flat_map(|process| &process.threads);
    threads.into_iter().any(|thread| thread.sandbox.is_some())
}

/// Gives all threads of a process, which are all there, their sandboxes. It comes before they become their user, since it takes
/// a right to do so without no_new_privs. `by_root`: by root's rights for a user.
///
/// # Errors
/// Where this process may not, or a user could not have; damage.
pub fn put(
    threads: &mut [StoppedThread],
    image: &ProcessImage,
    entry: u64,
    scratch: Scratch,
    by_root: bool,
) -> Result<()> {
    let sandboxes: Vec<Option<&Sandbox>> =
        image.threads.iter().map(|thread| thread.sandbox.as_ref()).collect();
    if sandboxes.iter().all(Option::is_none) {
        return Ok(());
    }
    for (thread, saved) in threads.iter_mut().zip(&image.threads) {
        let Some(sandbox) = &saved.sandbox else { continue };
        // Programs with more rights than their caller would be misled by it. Strict mode executes none.
        if by_root && !sandbox.filters.is_empty() && !saved.no_new_privs {
            return Err(EngineError::Unfit {
                what: format!("thread {} has a seccomp filter without no_new_privs", saved.tid),
                way_out: "restart the job as root".into(),
            });
        }
        thread.suspend_sandbox().map_err(|error| match error {
            gone @ EngineError::Gone(_) => gone,
            _ => no_right(),
        })?;
    }
    let shared = in_common(&sandboxes);
    let mut on = |place: usize, act: &dyn Fn(&mut Remote<'_>) -> Result<()>| -> Result<()> {
        let thread = threads.get_mut(place).ok_or(EngineError::Gone(image.pid))?;
        act(&mut Remote::take(thread, entry)?.with_scratch(scratch))
    };
    // Filters that all threads have in common stay so: later ones can then be for all threads, too.
    for index in sandboxes[0].iter().flat_map(|first| &first.filters[..shared]) {
        on(0, &|remote| install(remote, scratch, filter(image, *index)?, OF_ALL))?;
    }
    for (place, sandbox) in sandboxes.iter().enumerate() {
        let Some(sandbox) = sandbox else { continue };
        for index in &sandbox.filters[shared..] {
            on(place, &|remote| install(remote, scratch, filter(image, *index)?, 0))?;
        }
        if sandbox.strict {
            on(place, &|remote| {
                let strict = u64::from(libc::SECCOMP_MODE_STRICT);
                let arguments = [libc::PR_SET_SECCOMP as u64, strict, 0, 0, 0];
                remote.call("PR_SET_SECCOMP", libc::SYS_prctl, &arguments).map(drop)
            })?;
        }
    }
    Ok(())
}

/// With how many filters all threads begin, where there are several.
fn in_common(sandboxes: &[Option<&Sandbox>]) -> usize {
    let all: Option<Vec<&Sandbox>> = sandboxes.iter().copied().collect();
    let Some((first, others)) = all.as_deref().and_then(<[_]>::split_first) else { return 0 };
    if others.is_empty() || first.strict {
        return 0;
    }
    let same = |other: &&&Sandbox| {
        let pairs = first.filters.iter().zip(&other.filters);
        pairs.take_while(|(one, other)| one == other).count()
    };
    others.iter().map(|other| same(&other)).min().unwrap_or(0)
}

fn filter(image: &ProcessImage, index: u32) -> Result<&SandboxFilter> {
    let none = || EngineError::Damaged(format!("filter {index} of process {}", image.pid));
    image.filters.get(index as usize).ok_or_else(none)
}

fn install(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    filter: &SandboxFilter,
    flags: u64,
) -> Result<()> {
    let instructions = from_hex(&filter.instructions)?;
    let count = instructions.len() / INSTRUCTION;
    if instructions.len() % INSTRUCTION != 0 || !(1..=LONGEST).contains(&count) {
        return Err(EngineError::Damaged(format!("a filter of {} bytes", instructions.len())));
    }
    let at = scratch.data();
    let code = at + 4 * WORD as u64;
    // struct sock_fprog: a short count, then a pointer; all processors are little-endian.
    remote.memory().write(at, &to_words(&[count as u64, code]))?;
    remote.memory().write(code, &instructions)?;
    let log = if filter.log { LOG } else { 0 };
    let arguments = [SET_FILTER, flags | log | LET_GUESS, at];
    match remote.call("seccomp", libc::SYS_seccomp, &arguments)? {
        0 => Ok(()),
        thread => Err(EngineError::odd("seccomp", format!("thread {thread} has another filter"))),
    }
}

fn no_right() -> EngineError {
    EngineError::Unfit {
        what: "the job's processes have sandboxes (seccomp), which take CAP_SYS_ADMIN to restore, by a process without one"
            .into(),
        way_out: "restart the job as root, and outside of containers that filter system calls".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_all_begin_with_is_in_common() {
        let sandbox = |filters: &[u32]| Sandbox { strict: false, filters: filters.to_vec() };
        let (one, two, three) = (sandbox(&[0, 1, 2]), sandbox(&[0, 1]), sandbox(&[0, 2]));
        assert_eq!(in_common(&[Some(&one), Some(&two)]), 2);
        assert_eq!(in_common(&[Some(&one), Some(&two), Some(&three)]), 1);
        assert_eq!(in_common(&[Some(&one), None]), 0);
        assert_eq!(in_common(&[Some(&one)]), 0);
        let strict = Sandbox { strict: true, filters: Vec::new() };
        assert_eq!(in_common(&[Some(&strict), Some(&one)]), 0);
    }
}
