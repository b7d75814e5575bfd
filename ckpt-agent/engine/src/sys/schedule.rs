//! CPU affinity and scheduling policy of other threads (sched(7)).

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::super::error::{EngineError, Result};
use super::super::graph::Schedule;
use super::{abi, processors};

fn failed(call: &'static str, tid: i32) -> impl Fn(Errno) -> EngineError {
    move |errno| match errno {
        Errno::ESRCH => EngineError::Gone(tid),
        other => EngineError::system(call, format!("thread {tid}"), other),
    }
}

/// CPUs that a thread may run on; `None` where these are all that this process may run on.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn affinity(tid: i32) -> Result<Option<Vec<u32>>> {
    let call = "sched_getaffinity";
    let set = sched_getaffinity(Pid::from_raw(tid)).map_err(failed(call, tid))?;
    let own = sched_getaffinity(Pid::from_raw(0)).map_err(failed(call, 0))?;
    if set == own {
        return Ok(None);
    }
    let cpus = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true));
    Ok(Some(cpus.map(|cpu| cpu as u32).collect()))
}

/// Puts a thread on these CPUs. `false`: this machine has none of them.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn set_affinity(tid: i32, cpus: &[u32]) -> Result<bool> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        // A CPU beyond the set's size does not exist here.
        let _ = set.set(*cpu as usize);
    }
    match sched_setaffinity(Pid::from_raw(tid), &set) {
        Ok(()) => Ok(true),
        Err(Errno::EINVAL) => Ok(false),
        Err(errno) => Err(failed("sched_setaffinity", tid)(errno)),
    }
}

/// Takes a stopped thread to one processor after the other. Once this is dropped the thread may run where it might before.
#[derive(Debug)]
pub struct Visit {
    tid: i32,
    before: CpuSet,
}

impl Visit {
    /// Begins where the thread is.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn begin(tid: i32) -> Result<Self> {
        let before =
            sched_getaffinity(Pid::from_raw(tid)).map_err(failed("sched_getaffinity", tid))?;
        Ok(Self { tid, before })
    }

    /// Processors where it may have been: first those where it may run now.
    pub fn processors(&self) -> Vec<u32> {
        let is_own = |number: &u32| self.before.is_set(*number as usize).unwrap_or(false);
        let all = (0..CpuSet::count() as u32).filter(is_own);
        let others = processors::for_all().into_iter().filter(|number| !is_own(number));
        all.chain(others).collect()
    }

    /// Has it run on this processor alone. `false`: it may not.
    pub fn go(&self, cpu: usize) -> bool {
        let mut only = CpuSet::new();
        only.set(cpu).is_ok() && sched_setaffinity(Pid::from_raw(self.tid), &only).is_ok()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let tid = Pid::from_raw(self.tid);
        let mut all = CpuSet::new();
        for cpu in 0..CpuSet::count() {
            // Every number is below the size of the set.
            let _ = all.set(cpu);
        }
        // Who has asked for none in particular gets those that its cgroup is given later, too.
        let _ = sched_setaffinity(tid, &all);
        if sched_getaffinity(tid) != Ok(self.before) {
            // Only the end of the thread can make it fail, and then nothing is owed.
            let _ = sched_setaffinity(tid, &self.before);
        }
    }
}

/// Policy and static priority of a thread.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn policy(tid: i32) -> Result<(i32, i32)> {
    // The kernel's own calls: musl has functions of these names that do nothing and say ENOSYS.
    let call = "sched_getscheduler";
    // SAFETY: takes a number only.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) };
    let policy = Errno::result(policy).map_err(failed(call, tid))?;
    let mut priority: libc::c_int = 0;
    // SAFETY: struct sched_param of the kernel is one int, which lives across the call.
    let asked = unsafe { libc::syscall(libc::SYS_sched_getparam, tid, &raw mut priority) };
    Errno::result(asked).map_err(failed("sched_getparam", tid))?;
    Ok((policy as i32, priority))
}

/// Sets policy and priority of a thread.
///
/// # Errors
/// EPERM for real-time policies without privilege.
pub fn set_policy(tid: i32, policy: i32, priority: i32) -> nix::Result<()> {
    let priority: libc::c_int = priority;
    // SAFETY: as in `policy`.
    let set =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, policy, &raw const priority) };
    Errno::result(set).map(drop)
}

/// Gives the calling thread this nice value.
pub fn be_nice(value: i32) {
    // SAFETY: takes numbers only; on Linux 0 is the calling thread (setpriority(2), NOTES).
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) };
}

/// struct sched_attr, first version (sched_setattr(2)).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The shortest slice that the kernel gives, ns: a thread that asks for it is put before those of
/// longer slices when it wakes (kernel/sched/fair.c, since Linux 6.12; ignored before).
const SHORTEST_SLICE: u64 = 100_000;

/// The nice value that goes before all others.
const FOREMOST: i32 = -20;

/// While this lives, the calling thread and the threads taken along wait as briefly for a CPU as they
/// may ask for: a job stands still meanwhile. Belongs to the thread that began it.
#[derive(Debug)]
pub struct Hurry {
    own: Option<Attributes>,
    /// By ascending numbers.
    others: Vec<(i32, Attributes)>,
    _here: std::marker::PhantomData<*const ()>,
}

impl Hurry {
    /// Begins to hurry. What the kernel refuses is left as it is.
    pub fn begin() -> Self {
        let own = Attributes::of(0);
        if let Some(own) = own {
            // The nice value stays: a thread of great weight that sleeps and wakes often keeps those that
            // it waits for from running.
            Attributes { runtime: SHORTEST_SLICE, ..own }.apply(0);
        }
        Self { own, others: Vec::new(), _here: std::marker::PhantomData }
    }

    /// Lets another thread answer promptly to what is injected into it. Its nice value stays.
    pub fn take_along(&mut self, tid: i32) {
        if let Some(attributes) = Attributes::of(tid) {
            if (Attributes { runtime: SHORTEST_SLICE, ..attributes }).apply(tid) {
                let at = self.others.partition_point(|(other, _)| *other < tid);
                self.others.insert(at, (tid, attributes));
            }
        }
    }
}

impl Hurry {
    /// How a thread is scheduled but for this hurry: a slice of 0 is the machine's usual one.
    pub fn undone(&self, tid: i32, found: Schedule) -> Schedule {
        if found.policy == libc::SCHED_DEADLINE as u32 {
            return found;
        }
        let taken = self.others.binary_search_by_key(&tid, |(tid, _)| *tid).ok();
        let runtime = taken.map_or(found.runtime, |at| self.others[at].1.runtime);
        let usual = self.own.map(|own| own.runtime);
        Schedule { runtime: if Some(runtime) == usual { 0 } else { runtime }, ..found }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        let usual = self.own.map(|own| own.runtime);
        let own = self.own.map(|own| (0, own));
        for (tid, attributes) in self.others.drain(..).chain(own) {
            // A slice of 0 is the machine's usual one; a thread may have one of its own.
            let is_usual = tid == 0 || Some(attributes.runtime) == usual;
            let runtime = if is_usual { 0 } else { attributes.runtime };
            Attributes { runtime, ..attributes }.apply(tid);
        }
    }
}

/// While this lives, the calling thread goes before all ordinary threads, as far as it may ask for that: among hundreds
/// that are busy it would get to stop them, or to let them go on, too slowly, each time as one of them. Belongs to the
/// thread that began it, which must not wait for what another one does without going to sleep.
#[derive(Debug)]
pub struct Ahead {
    own: Option<Attributes>,
    _here: std::marker::PhantomData<*const ()>,
}

impl Ahead {
    /// Goes ahead: by the lowest real-time priority, since nice values count only within a session where the kernel
    /// groups threads by it; by a nice value where only that is granted. What the kernel refuses is left as it is.
    pub fn begin() -> Self {
        let own = Attributes::of(0).filter(|own| {
            let policy = libc::SCHED_RR as u32;
            let first = Attributes { policy, priority: 1, nice: 0, runtime: 0, ..*own };
            real_time_ends_nothing() && first.apply(0)
                || Attributes { nice: FOREMOST, runtime: 0, ..*own }.apply(0)
        });
        Self { own, _here: std::marker::PhantomData }
    }
}

/// Whether real-time threads may run on for as long as they like: beyond a limit they get SIGXCPU (getrlimit(2)).
fn real_time_ends_nothing() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to `limit`, which lives across the call.
    let got = unsafe { libc::getrlimit(abi::RLIMIT_RTTIME as _, &raw mut limit) };
    got == 0 && limit.rlim_cur == libc::RLIM_INFINITY
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(own) = self.own {
            Attributes { runtime: 0, ..own }.apply(0);
        }
    }
}

impl Attributes {
    /// Those of a thread (0: of the calling one), if it is an ordinary one.
    fn of(tid: i32) -> Option<Self> {
        let mut found = Self::default();
        let size = size_of::<Self>();
        // SAFETY: the kernel writes at most `size` bytes to `found`, which lives across the call.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut found, size, 0) };
        (got == 0 && found.policy == libc::SCHED_NORMAL as u32).then_some(found)
    }

    /// Gives them to a thread. `false`: refused.
    fn apply(self, tid: i32) -> bool {
        let wanted = Self { size: size_of::<Self>() as u32, ..self };
        // SAFETY: the kernel only reads `wanted`, which lives across the call.
        unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const wanted, 0) == 0 }
    }
}

/// Runs `look` with the calling thread on this CPU, then puts it back where it was. `None`: it may not
/// run there.
pub fn on_cpu<T>(cpu: usize, look: impl FnOnce() -> T) -> Option<T> {
    let own = Pid::from_raw(0);
    let before = sched_getaffinity(own).ok()?;
    let mut there = CpuSet::new();
    there.set(cpu).ok()?;
    sched_setaffinity(own, &there).ok()?;
    let seen = look();
    // The set was this thread's a moment ago.
    let _ = sched_setaffinity(own, &before);
    Some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_ahead_falls_back() {
        std::thread::spawn(|| {
            be_nice(3);
            let before = Attributes::of(0).unwrap();
            let ahead = Ahead::begin();
            let meanwhile = policy(0).unwrap().0;
            // As an ordinary user, as if nothing had been asked for.
            let foremost = Attributes::of(0).is_some_and(|own| own.nice == FOREMOST);
            assert_eq!(meanwhile == libc::SCHED_RR || foremost, ahead.own.is_some());
            drop(ahead);
            let after = Attributes::of(0).unwrap();
            assert_eq!((after.nice, after.runtime), (3, before.runtime));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_nice_value_comes_back() {
        std::thread::spawn(|| {
            be_nice(3);
            // SAFETY: takes numbers only.
            let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            let before = Attributes::of(0).unwrap();
            let hurry = Hurry::begin();
            assert_eq!(nice(), 3);
            drop(hurry);
            assert_eq!(nice(), 3);
            assert_eq!(Attributes::of(0).unwrap().runtime, before.runtime);
        })
        .join()
        .unwrap();
    }
}
