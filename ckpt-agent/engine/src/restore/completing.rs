//! The last steps of each process of a restore: its threads' state, its user, what refers to other processes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use nix::sys::resource::Resource;

use super::super::arch::{Architecture, Call, Current};
use super::super::error::{EngineError, Result};
use super::super::graph::{Credentials, Descriptor, FileId, Pid, ProcessImage, ResourceLimit};
use super::super::ipc;
use super::super::objects::{Object, RestoreContext, UnixLink};
use super::super::sys::limits::{resource_limits, set_resource_limit};
use super::super::sys::restrained::{OVER_PRIORITIES, Restrained};
use super::super::trace::{Remote, Scratch, StoppedThread};
use super::credentials::{self, Bounding};
use super::namespaces::{has_own_users, is_among_other_mounts};
use super::numbers::Numbers;
use super::{
    Complete, Helper, attributes, directories, posix_timers, sandbox, say_lacking, stops, threads,
};

/// A process that is its job's user's already. What refers to other processes is still to come.
#[derive(Debug)]
pub struct Furnished<'i> {
    threads: Vec<StoppedThread>,
    /// What it was.
    pub image: &'i ProcessImage,
    entry: u64,
    scratch: Scratch,
    pid: i32,
    /// Attributes that it can't have here.
    lacking: BTreeSet<&'static str>,
}

impl Furnished<'_> {
    /// Its number here.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has a description.
    pub fn holds(&self, id: FileId) -> bool {
        self.image.descriptors.iter().any(|descriptor| descriptor.file == id)
    }

    /// For calls of its first thread.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn remote(&mut self) -> Result<Remote<'_>> {
        let leader = self.threads.first_mut().ok_or(EngineError::Gone(self.pid))?;
        Ok(Remote::take(leader, self.entry)?.with_scratch(self.scratch))
    }

    /// For calls of the thread at this place in the image.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn remote_of(&mut self, place: usize) -> Result<Remote<'_>> {
        let thread = self.threads.get_mut(place).ok_or(EngineError::Gone(self.pid))?;
        Ok(Remote::take(thread, self.entry)?.with_scratch(self.scratch))
    }

    /// Ends the restore's calls in it.
    ///
    /// # Errors
    /// Failed calls; damage.
    pub(super) fn finish(mut self, context: &mut RestoreContext<'_>) -> Result<Complete> {
        let image = self.image;
        let mut lacking = std::mem::take(&mut self.lacking);
        {
            let mut remote = self.remote()?;
            listen_again(&mut remote, image, context)?;
            let by_root = context.user.is_some();
            lacking.extend(attributes::last_of_process(&mut remote, image, by_root)?);
            say_lacking(context, image.pid, &lacking);
            match image.ignores_traps() {
                true => remote.drop_scratch_ignoring_traps()?,
                false => remote.drop_scratch()?,
            }
        }
        for (thread, saved) in self.threads.iter_mut().zip(&image.threads) {
            // Until it is let go: then it ends with the restorer.
            thread.set_options(libc::PTRACE_O_EXITKILL)?;
            let mut registers = threads::registers(saved)?;
            if saved.ended {
                // All others are there: it ends as soon as it is let go.
                let exit = Call::of(libc::SYS_exit, [u64::from(saved.exit_status), 0, 0, 0, 0, 0]);
                Current::prepare_call(&mut registers, self.entry, exit);
            }
            thread.set_blocked(if saved.ended { u64::MAX } else { saved.blocked })?;
            thread.fix_resume(registers);
        }
        let known = stops::Known::of(image, self.entry);
        Ok(Complete { threads: self.threads, stopped_by: image.stopped_by, known, pid: self.pid })
    }
}

/// Gives a description one of its numbers in a process that has it under another one.
///
/// # Errors
/// The call's failure.
pub fn put_at(remote: &mut Remote<'_>, number: u64, descriptor: &Descriptor) -> Result<()> {
    let flags = if descriptor.close_on_exec { libc::O_CLOEXEC as u64 } else { 0 };
    remote.call("dup3", libc::SYS_dup3, &[number, descriptor.fd as u64, flags]).map(drop)
}

/// Gives a description all of its numbers in a process, which then has it under these alone.
///
/// # Errors
/// Failed calls.
pub fn put_everywhere(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    id: FileId,
    number: u64,
) -> Result<()> {
    for descriptor in image.descriptors.iter().filter(|one| one.file == id) {
        put_at(remote, number, descriptor)?;
    }
    remote.call("close", libc::SYS_close, &[number]).map(drop)
}

/// Gives a process its threads' state, its timers and its user.
///
/// # Errors
/// Failed calls; damage.
pub fn furnish<'i>(
    helper: Helper<'i>,
    context: &mut RestoreContext<'_>,
    own: &Credentials,
    numbers: &Numbers,
) -> Result<Furnished<'i>> {
    let (pid, image) = (helper.pid, helper.image);
    let (scratch, entry) = (helper.scratch, helper.entry_point);
    let mut all = vec![helper.leader];
    all.extend(helper.others.into_values());
    let tids: Vec<i32> = all.iter().map(StoppedThread::tid).collect();
    {
        let mut remote = Remote::take(&mut all[0], entry)?.with_scratch(scratch);
        for (saved, tid) in image.threads.iter().zip(&tids) {
            threads::tell_number(&mut remote, saved, *tid, (image.pid, pid))?;
        }
    }
    // As it sees itself.
    let own_number = image.threads.first().and_then(|first| first.tid_inside).unwrap_or(pid);
    let mut lacking = BTreeSet::new();
    for ((thread, saved), tid) in all.iter_mut().zip(&image.threads).zip(&tids) {
        let mut remote = Remote::take(thread, entry)?.with_scratch(scratch);
        {
            let _restrained =
                context.user.as_ref().map(|_| Restrained::begin(OVER_PRIORITIES)).transpose()?;
            threads::furnish(&mut remote, saved, &context.graph.layout, scratch)?;
            if let Some(own) = &saved.attributes {
                let by_root = context.user.is_some();
                // A rehearsal has the lowest of priorities.
                let own = match context.rehearsal {
                    true => Cow::Owned(own.without_priorities()),
                    false => Cow::Borrowed(own),
                };
                lacking.extend(attributes::of_thread(&mut remote, scratch, &own, by_root)?);
            }
        }
        let seen = saved.tid_inside.unwrap_or(*tid);
        threads::queue_signals(&mut remote, scratch, own_number, Some(seen), &saved.pending)?;
    }
    {
        let mut remote = Remote::take(&mut all[0], entry)?.with_scratch(scratch);
        threads::queue_signals(&mut remote, scratch, own_number, None, &image.pending)?;
        threads::arm_timers(&mut remote, scratch, &image.interval_timers)?;
        // After all processes owe what they owe, which changes semaphores, too.
        let objects = match context.graph.own_ipc_of(image) {
            Some((_, own)) => own.ipc_objects(),
            None => Some(&context.graph.ipc),
        };
        if let Some(objects) = objects {
            ipc::claim(&mut remote, scratch, objects, image.pid)?;
        }
    }
    let made_by = resource_limits(pid).unwrap_or_default();
    limit(pid, image, context)?;
    let shares = context.graph.sharing_of(image.pid).is_some_and(|one| one.directories);
    // Threads have it in common, but for those with directories of their own.
    if let Some(root) = image.root_directory.as_ref().filter(|_| !shares) {
        let mut remote = Remote::take(&mut all[0], entry)?.with_scratch(scratch);
        directories::change_root(&mut remote, root)?;
    }
    // Among users of its own it has the user's rights alone, and may not look at descriptors of this process.
    let apart = is_among_other_mounts(image, &context.graph.namespaces)
        || has_own_users(image, &context.graph.namespaces);
    for (thread, saved) in all.iter_mut().zip(&image.threads) {
        if let Some(own) = &saved.directories {
            let mut remote = Remote::take(thread, entry)?.with_scratch(scratch);
            directories::enter(&mut remote, own, apart, context)?;
        }
    }
    sandbox::put(&mut all, image, entry, scratch, context.user.is_some())?;
    let bounding = context.user.as_ref().map_or(Bounding::Recorded, |_| Bounding::Here);
    for (thread, saved) in all.iter_mut().zip(&image.threads) {
        let mut remote = Remote::take(thread, entry)?.with_scratch(scratch);
        credentials::become_user(&mut remote, scratch, saved, own, bounding)?;
    }
    limit_processes(pid, image, &made_by, context);
    let mut threads = Threads { all: &mut all, image, entry, scratch };
    let inside = numbers.inside(context.graph, image);
    let numbers = inside.as_ref().map_or((numbers, false), |inside| (inside, true));
    posix_timers::restore(&mut threads, image, scratch, numbers)?;
    {
        let mut remote = Remote::take(&mut all[0], entry)?.with_scratch(scratch);
        if image.dumpable != 2 {
            let arguments = [libc::PR_SET_DUMPABLE as u64, image.dumpable as u64, 0, 0, 0];
            remote.call("PR_SET_DUMPABLE", libc::SYS_prctl, &arguments)?;
        }
    }
    Ok(Furnished { threads: all, image, entry, scratch, pid, lacking })
}

/// The threads of a process while it is completed.
struct Threads<'a> {
    all: &'a mut [StoppedThread],
    image: &'a ProcessImage,
    entry: u64,
    scratch: Scratch,
}

impl posix_timers::Caller for Threads<'_> {
    fn on<T>(&mut self, tid: Pid, act: impl FnOnce(&mut Remote<'_>) -> Result<T>) -> Result<T> {
        let place = self.image.threads.iter().position(|thread| thread.tid == tid);
        let thread = place.and_then(|place| self.all.get_mut(place));
        let none = || EngineError::Damaged(format!("a timer of thread {tid}, which is none"));
        let mut remote = Remote::take(thread.ok_or_else(none)?, self.entry)?;
        remote = remote.with_scratch(self.scratch);
        act(&mut remote)
    }
}

/// Who listens at a Unix socket is who has called listen(2) last: the process, as its own user, rather than the init.
fn listen_again(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    context: &RestoreContext<'_>,
) -> Result<()> {
    for descriptor in image.descriptors.iter().filter(|one| context.needs(one.file)) {
        let file = context.graph.files.get(descriptor.file.0 as usize);
        let Some(Object::UnixSocket(socket)) = file.map(|file| &file.object) else { continue };
        let UnixLink::Listening { backlog, by } = socket.link else { continue };
        // Of who has gone nothing is known but that it was the job's.
        if by.is_none_or(|by| by == image.pid) {
            // Where such calls are watched, nobody answers before the job runs.
            let word = context.watched.as_ref().map_or(0, |watched| watched.word());
            let arguments = [descriptor.fd as u64, backlog as u64, 0, 0, 0, word];
            remote.call("listen", libc::SYS_listen, &arguments)?;
        }
    }
    Ok(())
}

/// Limits come late: they would have been in the restorer's own way. But before the process becomes another user, who could not
/// raise them, and whose limits not everybody may set. What root restores for a user is not raised, either.
fn limit(pid: i32, image: &ProcessImage, context: &mut RestoreContext<'_>) -> Result<()> {
    let _restrained =
        context.user.as_ref().map(|_| Restrained::begin(OVER_PRIORITIES)).transpose()?;
    let now = resource_limits(pid).unwrap_or_default();
    let due = |limit: &&ResourceLimit| limit.resource != PROCESSES && !now.contains(limit);
    for limit in image.limits.iter().filter(due) {
        if set_resource_limit(pid, limit).is_err() {
            say_not_raised(image.pid, limit, context);
        }
    }
    Ok(())
}

/// RLIMIT_NPROC
const PROCESSES: u32 = Resource::RLIMIT_NPROC as u32;

/// Limits how many processes the user of this one may have, who has become that user by now: whoever does so while there are more
/// than that can't execute a program any more (kernel/sys.c, flag_nproc_exceeded). `before`: limits that it had from its restorer.
fn limit_processes(
    pid: i32,
    image: &ProcessImage,
    before: &[ResourceLimit],
    context: &mut RestoreContext<'_>,
) {
    let here = before.iter().find(|limit| limit.resource == PROCESSES);
    let Some(limit) = image.limits.iter().find(|limit| limit.resource == PROCESSES) else { return };
    let above = context.user.is_some() && here.is_some_and(|here| here.hard < limit.hard);
    if here != Some(limit) && (above || set_resource_limit(pid, limit).is_err()) {
        say_not_raised(image.pid, limit, context);
    }
}

fn say_not_raised(pid: Pid, limit: &ResourceLimit, context: &mut RestoreContext<'_>) {
    context.warn(format!(
        "process {pid}: resource limit {} stays as it is here, without privilege it cannot be raised to {}",
        limit.resource, limit.hard
    ));
}
