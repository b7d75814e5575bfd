//! Carries a plan out with real processes. Runs in the job's init.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use nix::unistd::{getpid, getsid, setsid};

use super::super::super::graph::Pid;
use super::super::super::job_init::World;
use super::super::super::sys::clone3::{Shared, Side, SingleThreaded};
use super::super::super::sys::{prctl, signals};
use super::error::HelperError;
use super::life::Heritage;
use super::number_table::NumberTable;
use super::plan::{Birth, Plan, Role};
use super::recorded::INIT;
use super::turns::Turns;

/// For how long nobody may get on in a phase, apart from what each process adds. It is counted from the last birth, tick
/// or turn: a busy machine makes a phase long, which is no failure.
const PHASE_LIMIT: Duration = Duration::from_secs(10);
/// What each process adds to the limit on a phase.
const LIMIT_PER_PROCESS: Duration = Duration::from_millis(10);

/// What a recorded number of a process, group or session is here; `None`: nobody's.
pub type Here<'a> = &'a dyn Fn(Pid) -> Option<Pid>;

/// A tree that has been built.
#[derive(Debug, Clone, Default)]
pub struct Grown {
    /// Recorded numbers of those that live on, in the order of the plan.
    pub kept: Vec<Pid>,
    /// What recorded numbers of processes, groups and sessions are here: in a PID namespace of the tree's own the same.
    pub numbers: BTreeMap<Pid, Pid>,
}

/// What is done in the helpers beside taking their places. Numbers are as they were recorded. Runs as ordinary,
/// single-threaded code in the helper itself.
pub trait Hooks {
    /// Called in each session leader that lives on, when all sessions are there and no group yet:
    /// the place for TIOCSCTTY.
    ///
    /// # Errors
    ///
    /// Ends the whole building.
    fn terminal(&self, pid: Pid) -> Result<(), HelperError>;

    /// Called in each process that lives on when the tree is complete, with every signal blocked:
    /// the place for descriptors, limits, the foreground group and all else that the process sets up
    /// by itself.
    ///
    /// # Errors
    ///
    /// Ends the whole building.
    fn prepare(&self, pid: Pid, here: Here<'_>) -> Result<(), HelperError>;

    /// What a process is forked sharing with its parent.
    fn shared(&self, _pid: Pid) -> Shared {
        Shared::default()
    }

    /// Whether a process is to have its number where numbers are the machine's: another one may want it more.
    fn wants_number(&self, _pid: Pid) -> bool {
        true
    }

    /// What each process that lives on does when all is done.
    fn wait(&self, _pid: Pid, _here: Here<'_>) -> ! {
        loop {
            nix::unistd::pause();
        }
    }
}

/// Why a tree was not built. No helper is left.
#[derive(Debug, thiserror::Error)]
pub enum BirthError {
    /// What the first helper that failed has to say, which is the text of a [`HelperError`].
    #[error("{0}")]
    Helper(String),
    /// Init could not do for its children what helpers do for theirs.
    #[error(transparent)]
    Own(#[from] HelperError),
    /// A system call of init failed.
    #[error("{call} in the job's init: {source}")]
    Init {
        /// The call.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Not called in the init of a PID namespace, nor by one who adopts orphans.
    #[error(
        "a process tree can be built by the init of a PID namespace or a subreaper only, not by process {0}"
    )]
    NotInit(Pid),
    /// Nobody got on in a phase any more, and a helper had not come to its end.
    #[error("process {pid} did not finish {phase}: nothing happened for {limit_ms} ms")]
    TooLong {
        /// The helper.
        pid: Pid,
        /// What it was to do.
        phase: &'static str,
        /// For how long nobody got on, in milliseconds.
        limit_ms: u128,
    },
}

/// What everybody does at the same time. Each phase begins when all have finished the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Births,
    Found(Level),
    Join(Level),
    Move(Level),
    /// Of those in PID namespaces of the job's own: groups that were made outside are there by then.
    BirthsInside,
    /// The adopter of this round becomes a subreaper.
    Arm(usize),
    /// The temporary processes of this round end.
    End(usize),
    Zombies,
    Settle,
    Prepare,
    /// The preparation of those who share their parents' descriptors.
    Follow,
}

/// Whose turn it is to come into sessions and groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// Processes that are in no PID namespace of the job's own.
    Outside,
    /// Those that are in one.
    Inside,
}

impl Level {
    pub(super) fn of(birth: &Birth) -> Self {
        if birth.inside.is_some() { Self::Inside } else { Self::Outside }
    }

    fn phases(self) -> [Phase; 3] {
        [Phase::Found(self), Phase::Join(self), Phase::Move(self)]
    }
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Births | Self::BirthsInside => "forking its children",
            Self::Found(_) | Self::Join(_) | Self::Move(_) => "entering its process group",
            Self::Arm(_) | Self::End(_) => "the end of temporary processes",
            Self::Zombies => "the end of zombies",
            Self::Settle => "settling down",
            Self::Prepare | Self::Follow => "its preparation",
        }
    }
}

/// The order of the phases, and who takes part.
pub(super) struct Schedule {
    rounds: usize,
    /// Whether there are any PID namespaces of the job's own.
    inside: bool,
    /// Zombies by their parents.
    pub(super) zombies: BTreeMap<Pid, Vec<Pid>>,
}

impl Schedule {
    fn new(plan: &Plan) -> Self {
        let mut zombies: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
        for birth in &plan.births {
            if let Role::Zombie { .. } = birth.role {
                zombies.entry(birth.ppid).or_default().push(birth.pid);
            }
        }
        let inside = plan.births.iter().any(|birth| birth.inside.is_some());
        Self { rounds: plan.rounds.len(), inside, zombies }
    }

    /// The number on the table of the first phase.
    pub(super) fn number(first: Phase) -> u32 {
        debug_assert_eq!(first, Phase::Births);
        1
    }

    /// The number of the phase in which a birth takes place.
    pub(super) fn number_of_birth(&self, birth: &Birth) -> u32 {
        let inside = self.after_births().find(|(_, phase)| *phase == Phase::BirthsInside);
        let inside = inside.filter(|_| birth.inside.is_some()).map(|(number, _)| number);
        inside.unwrap_or_else(|| Self::number(Phase::Births))
    }

    /// The phases after the births, with their numbers on the table.
    pub(super) fn after_births(&self) -> impl Iterator<Item = (u32, Phase)> + use<> {
        let rounds = (0..self.rounds).flat_map(|round| [Phase::Arm(round), Phase::End(round)]);
        let inside = [Phase::BirthsInside].into_iter().chain(Level::Inside.phases());
        let inside = inside.filter({
            let any = self.inside;
            move |_| any
        });
        (Level::Outside.phases().into_iter())
            .chain(inside)
            .chain(rounds)
            .chain([Phase::Zombies, Phase::Settle, Phase::Prepare, Phase::Follow])
            .zip(Self::number(Phase::Births) + 1..)
            .map(|(phase, number)| (number, phase))
    }

    /// Whether a process with this role is there at the end of the phase, to tick it off.
    fn ticks(birth: &Birth, phase: Phase) -> bool {
        let is_outside = phase == Phase::Births || Level::Outside.phases().contains(&phase);
        if is_outside && birth.inside.is_some() {
            return false;
        }
        match (birth.role, phase) {
            (Role::Kept, _) => true,
            (Role::Zombie { .. } | Role::Temporary { .. }, Phase::Zombies | Phase::Settle) => false,
            (Role::Zombie { .. } | Role::Temporary { .. }, Phase::Prepare | Phase::Follow) => false,
            (Role::Zombie { .. }, _) => true,
            (Role::Temporary { round }, Phase::Arm(now)) => round >= now,
            (Role::Temporary { round }, Phase::End(now)) => round > now,
            (Role::Temporary { .. }, _) => true,
        }
    }
}

/// Builds the tree of a plan: real processes, each in its place, signals blocked, waiting in
/// pause(2) to be seized.
///
/// The caller is single-threaded and without children: the init of a fresh PID namespace, where everybody gets the
/// recorded number, or any other process that is a subreaper, where they do as far as privileges and other processes
/// allow. During
/// the call it and the helpers ignore all signals: what ends on the way leaves no signal pending.
/// Afterwards the caller has its own actions and mask again.
///
/// # Errors
///
/// The first failure of any helper, or of init. All helpers have been killed and reaped then.
pub fn grow(plan: &Plan, hooks: &impl Hooks) -> Result<Grown, BirthError> {
    let init = |call| move |source: io::Error| BirthError::Init { call, source };
    let own = getpid().as_raw();
    if own != INIT && !prctl::is_child_subreaper().is_ok_and(|is_one| is_one) {
        return Err(BirthError::NotInit(own));
    }
    let proof = SingleThreaded::check().map_err(init("unshare"))?;
    let table = NumberTable::new(plan.births.len()).map_err(init("mmap"))?;
    let quiet = Quiet::begin().map_err(init("rt_sigaction"))?;
    let session = getsid(None).map_err(|error| init("getsid")(error.into()))?;
    if plan.init_leads && session.as_raw() != own {
        setsid().map_err(|error| init("setsid")(error.into()))?;
    }
    let schedule = Schedule::new(plan);
    // In a PID namespace of its own everybody's number can be asked for.
    let (ordered, turns);
    let (plan, turns) = if own == INIT {
        (plan, None)
    } else {
        (ordered, turns) = Turns::of(plan, table.counter(), &|pid| hooks.wants_number(pid));
        (&ordered, Some(turns))
    };
    let indices = plan.births.iter().enumerate().map(|(index, birth)| (birth.pid, index)).collect();
    let heritage =
        Heritage { plan, schedule, table: &table, hooks, proof, init: own, turns, indices };
    let result = conduct(&heritage);
    if result.is_err() {
        match own {
            INIT => clear(plan, &table),
            _ => {
                table.abort();
                World::Machine.end_all();
            }
        }
    }
    drop(quiet);
    result?;
    let kept = plan.births.iter().filter(|birth| birth.role == Role::Kept);
    let all = heritage.indices.keys().copied().chain([INIT]);
    Ok(Grown {
        kept: kept.map(|birth| birth.pid).collect(),
        numbers: all.filter_map(|pid| Some((pid, heritage.here(pid)?))).collect(),
    })
}

fn conduct<H: Hooks>(heritage: &Heritage<'_, H>) -> Result<(), BirthError> {
    open(heritage, Schedule::number(Phase::Births), Phase::Births);
    for index in &heritage.plan.by_init {
        if heritage.fork(*index)? == Side::Child {
            heritage.live(*index);
        }
    }
    finish(heritage, Schedule::number(Phase::Births), Phase::Births)?;
    for (number, phase) in heritage.schedule.after_births() {
        open(heritage, number, phase);
        if phase == Phase::BirthsInside {
            let forked = heritage.fork_inward(&heritage.plan.inward_by_init);
            forked.map_err(|error| match heritage.table.failure() {
                Some(text) => BirthError::Helper(text),
                None => error.into(),
            })?;
        }
        finish(heritage, number, phase)?;
        // By now those that end have ended or are about to: the helpers wait for theirs, init for its.
        match phase {
            Phase::End(round) => heritage.reap(None, round)?,
            Phase::Zombies => heritage.await_zombies(None)?,
            _ => {}
        }
    }
    Ok(())
}

fn open<H: Hooks>(heritage: &Heritage<'_, H>, number: u32, phase: Phase) {
    let births = &heritage.plan.births;
    let target = births.iter().filter(|birth| Schedule::ticks(birth, phase)).count();
    heritage.table.open(number, target);
}

fn finish<H: Hooks>(
    heritage: &Heritage<'_, H>,
    number: u32,
    phase: Phase,
) -> Result<(), BirthError> {
    let births = &heritage.plan.births;
    let count = u32::try_from(births.len()).unwrap_or(u32::MAX);
    let limit = PHASE_LIMIT + LIMIT_PER_PROCESS * count;
    let (mut seen, mut since) = (heritage.table.progress(), Instant::now());
    while !heritage.table.nap() {
        let progress = heritage.table.progress();
        if progress != seen {
            (seen, since) = (progress, Instant::now());
        }
        if since.elapsed() > limit {
            let late = births.iter().enumerate().find(|(index, birth)| {
                Schedule::ticks(birth, phase) && !heritage.table.has_ticked(*index, number)
            });
            let pid = late.map_or(INIT, |(_, birth)| birth.pid);
            let (phase, limit_ms) = (phase.name(), limit.as_millis());
            return Err(BirthError::TooLong { pid, phase, limit_ms });
        }
    }
    match heritage.table.failure() {
        Some(text) => Err(BirthError::Helper(text)),
        None => Ok(()),
    }
}

/// Kills and reaps all helpers, which have their exact numbers, also those that were being forked meanwhile: these end
/// by themselves once the table says so, but may need a moment to show up on it.
fn clear(plan: &Plan, table: &NumberTable) {
    table.abort();
    let begun = Instant::now();
    let mut quiet_rounds = 0;
    while begun.elapsed() < PHASE_LIMIT && quiet_rounds < 3 {
        let mut alive = false;
        for index in table.all_born() {
            let pid = plan.births[index].pid;
            // SAFETY: plain system calls; the kernel accepts a null pointer for the status. The number
            // is a helper's: others have not been in this namespace when it was free, and init reaps it
            // here only, after which nobody of this namespace takes it while init is in this loop.
            alive |= unsafe {
                let there = libc::kill(pid, libc::SIGKILL) == 0;
                libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG);
                there
            };
        }
        quiet_rounds = if alive { 0 } else { quiet_rounds + 1 };
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// While it lives, the process (and who is forked by it) ignores all signals but SIGCHLD, which
/// has its default action: children become zombies and the signal itself is discarded.
struct Quiet {
    actions: Vec<(i32, signals::Action)>,
    blocked: u64,
}

impl Quiet {
    fn begin() -> io::Result<Self> {
        let mut quiet = Self { actions: Vec::new(), blocked: signals::set_blocked(u64::MAX)? };
        for signal in 1..=signals::LAST {
            let action = match signal {
                libc::SIGKILL | libc::SIGSTOP => continue,
                libc::SIGCHLD => signals::DEFAULT,
                _ => signals::IGNORE,
            };
            // SAFETY: neither SIG_DFL nor SIG_IGN has a handler.
            quiet.actions.push((signal, unsafe { signals::set_action(signal, action) }?));
        }
        // An ignored signal is discarded when it is sent, but only if it is not blocked (signal(7)).
        signals::set_blocked(0)?;
        Ok(quiet)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = signals::set_blocked(u64::MAX);
        for (signal, action) in &self.actions {
            // SAFETY: the action that this very process had before.
            let _ = unsafe { signals::set_action(*signal, *action) };
        }
        let _ = signals::set_blocked(self.blocked);
    }
}
