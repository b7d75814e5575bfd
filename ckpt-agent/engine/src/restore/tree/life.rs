//! The life of a helper, from its birth to the moment when it can be seized.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{getpgrp, getpid, getppid, getsid, setpgid, setsid};

use super::super::super::graph::Pid;
use super::super::super::sys::clone3::{
    Exact, Shared, Side, SingleThreaded, fork_numbered, own_number,
};
use super::super::super::sys::{prctl, signals};
use super::birth::{Hooks, Level, Phase, Schedule};
use super::checked::first_of;
use super::error::HelperError;
use super::number_table::NumberTable;
use super::plan::{Birth, GroupStep, Index, Plan, Role};
use super::recorded::INIT;
use super::turns::Turns;
use super::zombie::Ending;

/// Pause between looks for another helper.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// What init hands down to every helper.
pub(super) struct Heritage<'a, H: Hooks> {
    pub(super) plan: &'a Plan,
    pub(super) schedule: Schedule,
    pub(super) table: &'a NumberTable,
    pub(super) hooks: &'a H,
    pub(super) proof: SingleThreaded,
    /// The caller's own number; [`INIT`] in a PID namespace of its own, which nobody else is in.
    pub(super) init: Pid,
    /// In which order numbers are to be had, where they can't be asked for.
    pub(super) turns: Option<Turns>,
    /// Births by their recorded numbers.
    pub(super) indices: BTreeMap<Pid, Index>,
}

type Step<T = ()> = Result<T, HelperError>;

impl<H: Hooks> Heritage<'_, H> {
    /// What a recorded number of a process, group or session is here.
    pub(super) fn here(&self, recorded: Pid) -> Option<Pid> {
        match recorded {
            INIT => Some(self.init),
            _ => self.table.number(*self.indices.get(&recorded)?),
        }
    }

    /// What a recorded number is to a helper; to init, if nobody is named. One in a PID namespace of the job's own sees
    /// nobody outside of it.
    fn seen_by(&self, me: Option<Index>, recorded: Pid) -> Option<Pid> {
        let births = &self.plan.births;
        let Some(own) = me.and_then(|me| births[me].inside) else { return self.here(recorded) };
        let found = births[*self.indices.get(&recorded)?].inside?;
        (found.namespace == own.namespace).then_some(found.pid)
    }

    fn must_be_seen(&self, me: Option<Index>, recorded: Pid) -> Step<Pid> {
        self.seen_by(me, recorded).ok_or(HelperError::NotHere(recorded))
    }

    /// Lives as helper `index`, just forked. Nothing of the caller's code may run in the child, so
    /// even a panic ends here, and is told through the table.
    pub(super) fn live(&self, index: Index) -> ! {
        let witness = self.table.witness();
        // Before any unwinding, of which there is none where panics abort.
        std::panic::set_hook(Box::new(move |panic| {
            let payload = panic.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("unknown");
            witness.fail(&format!("process {}: internal error: {text}", getpid()));
            leave(125)
        }));
        let mut me = index;
        let end = self.be_born(&mut me).and_then(|()| self.go_through(me));
        let Err(error) = end;
        self.table.fail(&format!("process {}: {error}", self.plan.births[me].pid));
        leave(125)
    }

    /// Forks those who are to be forked; returns as well in each of them, with `me` changed.
    fn be_born(&self, me: &mut Index) -> Step {
        let births = &self.plan.births;
        'born: loop {
            let birth = &births[*me];
            self.table.born(*me, self.number(*me, own_number()));
            for child in &birth.early {
                if self.fork(*child)? == Side::Child {
                    *me = *child;
                    continue 'born;
                }
            }
            if birth.leads_session() {
                setsid().map_err(HelperError::system("setsid"))?;
                // Its children have the terminal from it alone (kernel/fork.c, copy_process).
                if birth.role == Role::Kept {
                    self.hooks.terminal(birth.pid)?;
                }
            }
            for child in &birth.later {
                if self.fork(*child)? == Side::Child {
                    *me = *child;
                    continue 'born;
                }
            }
            self.table.tick(*me, self.schedule.number_of_birth(birth));
            return Ok(());
        }
    }

    /// What number a helper has here, of which one has been told by itself or its parent: these may be in a PID namespace of
    /// the job's own.
    fn number(&self, index: Index, told: Pid) -> Pid {
        let birth = &self.plan.births[index];
        if birth.inside.is_some() { birth.pid } else { told }
    }

    /// Forks processes into PID namespaces of the job's own, each in the group that it was born in. Only in the caller it
    /// returns.
    pub(super) fn fork_inward(&self, inward: &[Index]) -> Step {
        for child in inward {
            let own = getpgrp().as_raw();
            let group = self.plan.births[*child].born_in.map(|group| {
                self.here(group).filter(|_| group != INIT).ok_or(HelperError::NotHere(group))
            });
            let group = group.transpose()?.filter(|group| *group != own);
            group.map(enter).transpose()?;
            let inside = self.plan.births[*child].inside.filter(|inside| !inside.is_first());
            if let Some(inside) = inside {
                let first = self.await_first(inside.namespace)?;
                have_children_in(&format!("/proc/{first}/ns/pid"))?;
            }
            if self.fork(*child)? == Side::Child {
                self.live(*child);
            }
            if inside.is_some() {
                have_children_in("/proc/self/ns/pid")?;
            }
            group.map(|_| enter(own)).transpose()?;
        }
        Ok(())
    }

    /// Waits until the first process of a PID namespace is there; its number here.
    fn await_first(&self, namespace: u32) -> Step<Pid> {
        let first = first_of(self.plan, namespace).ok_or(HelperError::NotHere(INIT))?;
        loop {
            if let Some(number) = self.table.number(first) {
                return Ok(number);
            }
            if self.table.is_aborted() {
                leave(125);
            }
            // Whoever was to fork it may be the one that has failed; the init, which ends all others then, waits here, too.
            if self.table.failure().is_some() {
                return Err(HelperError::NotHere(self.plan.births[first].pid));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Forks one process of the plan.
    pub(super) fn fork(&self, child: Index) -> Step<Side> {
        if self.table.is_aborted() {
            leave(125);
        }
        let Birth { pid, exit_signal, ppid, forked_by, .. } = self.plan.births[child];
        let shared = self.hooks.shared(pid);
        let parent = forked_by.map(|parent| self.plan.births[parent].pid);
        if shared != Shared::default() && parent != Some(ppid) {
            return Err(HelperError::NotShared(pid));
        }
        let exact = match self.plan.births[child].inside {
            None => Exact::Own(pid),
            Some(inside) if inside.is_first() => Exact::First(pid),
            Some(inside) => Exact::Inside(inside.pid, pid),
        };
        let forked = match (&self.turns, exact) {
            (None, _) => fork_numbered(&self.proof, exact, exit_signal, shared),
            (Some(turns), Exact::Own(_)) => {
                turns.fork(self.table, &self.proof, child, exit_signal, shared)
            }
            (Some(_), _) => return Err(HelperError::NotInside(pid)),
        };
        let side = forked.map_err(|source| HelperError::Fork { pid, source })?;
        let number = match side {
            Side::Parent(number) => number,
            Side::Child => own_number(),
        };
        self.table.born(child, self.number(child, number));
        Ok(side)
    }

    fn go_through(&self, me: Index) -> Step<std::convert::Infallible> {
        let born = self.schedule.number_of_birth(&self.plan.births[me]);
        for (number, phase) in self.schedule.after_births().filter(|(number, _)| *number > born) {
            if !self.table.await_phase(number) {
                leave(125);
            }
            self.act(me, phase)?;
            self.table.tick(me, number);
        }
        self.hooks.wait(self.plan.births[me].pid, &|recorded| self.seen_by(Some(me), recorded))
    }

    fn act(&self, me: Index, phase: Phase) -> Step {
        let birth = &self.plan.births[me];
        match (phase, birth.group) {
            (Phase::Births, _) => Ok(()),
            (Phase::BirthsInside, _) => self.fork_inward(&birth.inward),
            (Phase::Found(level) | Phase::Join(level) | Phase::Move(level), _)
                if level != Level::of(birth) =>
            {
                Ok(())
            }
            (Phase::Found(_), GroupStep::Found | GroupStep::FoundAndMove(_)) => enter(own_number()),
            (Phase::Join(_), GroupStep::Join(pgid))
            | (Phase::Move(_), GroupStep::FoundAndMove(pgid)) => {
                enter(self.must_be_seen(Some(me), pgid)?)
            }
            (Phase::Found(_) | Phase::Join(_) | Phase::Move(_), _) => Ok(()),
            (Phase::Arm(round), _) => self.arm(me, round),
            (Phase::End(round), _) => {
                self.reap(Some(me), round)?;
                if birth.role == (Role::Temporary { round }) {
                    leave(0);
                }
                Ok(())
            }
            (Phase::Zombies, _) => {
                if let Role::Zombie { status, user } = birth.role {
                    self.verify(me)?;
                    become_user(user);
                    return end_with(status);
                }
                self.await_zombies(Some(me))
            }
            (Phase::Settle, _) => {
                set_subreaper(birth.subreaper)?;
                silence()?;
                self.verify(me)
            }
            // One whose descriptors its parent puts in place waits until that is done.
            (Phase::Prepare | Phase::Follow, _) => {
                let follows = self.hooks.shared(birth.pid).descriptors;
                match follows == (phase == Phase::Follow) {
                    true => {
                        self.hooks.prepare(birth.pid, &|recorded| self.seen_by(Some(me), recorded))
                    }
                    false => Ok(()),
                }
            }
        }
    }

    fn arm(&self, me: Index, round: usize) -> Step {
        if self.plan.rounds[round].adopter == Some(me) {
            return set_subreaper(true);
        }
        match round.checked_sub(1).map(|before| self.plan.rounds[before].adopter == Some(me)) {
            Some(true) => set_subreaper(false),
            _ => Ok(()),
        }
    }

    fn children(&self, me: Option<Index>) -> impl Iterator<Item = &Birth> {
        let (early, later) = match me {
            Some(me) => {
                let birth = &self.plan.births[me];
                (birth.early.as_slice(), birth.later.as_slice())
            }
            None => (self.plan.by_init.as_slice(), [].as_slice()),
        };
        early.iter().chain(later).map(|child| &self.plan.births[*child])
    }

    /// Waits for the temporary children of `me` that end in this round.
    pub(super) fn reap(&self, me: Option<Index>, round: usize) -> Step {
        for child in self.children(me) {
            if child.role == (Role::Temporary { round }) {
                wait_for(self.must_be_seen(me, child.pid)?, libc::WEXITED)?;
            }
        }
        Ok(())
    }

    /// Waits until the children of `me` that are to be zombies are that.
    pub(super) fn await_zombies(&self, me: Option<Index>) -> Step {
        let ppid = me.map_or(INIT, |me| self.plan.births[me].pid);
        let zombies = &self.schedule.zombies;
        for zombie in zombies.get(&ppid).into_iter().flatten() {
            wait_for(self.must_be_seen(me, *zombie)?, libc::WEXITED | libc::WNOWAIT)?;
        }
        Ok(())
    }

    fn verify(&self, me: Index) -> Step {
        let birth = &self.plan.births[me];
        let sid = getsid(None).map_err(HelperError::system("getsid"))?;
        let found = [getppid(), getpgrp(), sid].map(nix::unistd::Pid::as_raw);
        let wanted = [birth.ppid, birth.pgid, birth.sid];
        for ((what, found), wanted) in
            ["parent", "process group", "session"].into_iter().zip(found).zip(wanted)
        {
            let wanted = match (self.seen_by(Some(me), wanted), birth.inside) {
                // Who is outside has no number there.
                (None, Some(_)) if self.here(wanted).is_some() => 0,
                (seen, _) => seen.ok_or(HelperError::NotHere(wanted))?,
            };
            if found != wanted {
                return Err(HelperError::Misplaced { what, found, wanted });
            }
        }
        Ok(())
    }
}

fn leave(code: i32) -> ! {
    // SAFETY: ends the process at once, as a forked child should: no handlers of its parent's run.
    unsafe { libc::_exit(code) }
}

/// Has children of the caller be in a PID namespace.
fn have_children_in(path: &str) -> Step {
    let namespace =
        std::fs::File::open(path).map_err(HelperError::system(format!("open {path}")))?;
    nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWPID)
        .map_err(HelperError::system(format!("setns {path}")))
}

fn enter(pgid: Pid) -> Step {
    setpgid(nix::unistd::Pid::from_raw(0), nix::unistd::Pid::from_raw(pgid))
        .map_err(HelperError::system(format!("setpgid to process group {pgid}")))
}

fn set_subreaper(on: bool) -> Step {
    prctl::set_child_subreaper(on).map_err(HelperError::system("prctl PR_SET_CHILD_SUBREAPER"))
}

/// Blocks every signal and takes every action back to SIG_DFL. None is pending: each was ignored
/// until now.
fn silence() -> Step {
    signals::set_blocked(u64::MAX).map_err(HelperError::system("rt_sigprocmask"))?;
    for signal in 1..=signals::LAST {
        if ![libc::SIGKILL, libc::SIGSTOP].contains(&signal) {
            // SAFETY: SIG_DFL has no handler.
            unsafe { signals::set_action(signal, signals::DEFAULT) }
                .map_err(HelperError::system(format!("rt_sigaction of signal {signal}")))?;
        }
    }
    Ok(())
}

fn wait_for(child: Pid, options: i32) -> Step {
    loop {
        // SAFETY: a zeroed siginfo_t is a valid place for the kernel to write to; __WALL takes children
        // with any exit signal.
        let result = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child as libc::id_t, &raw mut info, options | libc::__WALL)
        };
        if result == 0 {
            return Ok(());
        }
        match Errno::last() {
            Errno::EINTR => {}
            error => return Err(HelperError::system(format!("wait for process {child}"))(error)),
        }
    }
}

/// Makes the process a user's, as whom it is to end. Where that takes a right that it has not, it can't have been another's:
/// users of a user namespace are called otherwise outside.
fn become_user(user: Option<u32>) {
    // SAFETY: takes numbers only. It is a call of this thread alone, the only one of its process.
    let own = unsafe { libc::getuid() };
    if let Some(user) = user.filter(|user| *user != own) {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
    }
}

/// Ends the process with a wait(2) status, without a core file. A signal that ends it must not be
/// blocked.
///
/// # Errors
/// It still lives.
pub fn end_with(status: i32) -> Step {
    match Ending::of(status) {
        Some(Ending::Exit(code)) => leave(code),
        Some(Ending::Signal(signal)) => {
            if Ending::dumps_core(signal) {
                // One that is not dumpable leaves none either, but an ordinary user's next checkpoint would not be told how
                // it has ended. A limit of 0 does not hold where core_pattern is a pipe; of 1 byte, for which no file is
                // begun either, it does (fs/coredump.c).
                setrlimit(Resource::RLIMIT_CORE, 1, 1)
                    .or_else(|_| prctl::set_dumpable(false))
                    .map_err(HelperError::system("setrlimit RLIMIT_CORE"))?;
            }
            if signal != libc::SIGKILL {
                // SAFETY: SIG_DFL has no handler.
                unsafe { signals::set_action(signal, signals::DEFAULT) }
                    .map_err(HelperError::system(format!("rt_sigaction of signal {signal}")))?;
            }
            // SAFETY: a plain system call.
            unsafe { libc::kill(libc::getpid(), signal) };
            Err(HelperError::Outlived(signal))
        }
        None => Err(HelperError::NoStatus(status)),
    }
}
