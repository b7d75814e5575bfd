//! What the processes of jobs have really got of a machine's CPUs.
//!
//! A thread that may run either runs or waits for a CPU; the kernel counts both
//! (Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat), and time in which a quota holds it back is
//! waiting, too. So what all threads ran in a second is what the machine gave, if they wanted more: where they
//! waited a good part of their time although the cores that are known of would have sufficed, that is what
//! the machine has. Where they did not want more, nothing is learned.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// For how long looks are put together, so that a burst of somebody else's work is no change of the machine.
const WINDOW: Duration = Duration::from_secs(8);
/// The least time that says anything.
const LEAST: Duration = Duration::from_secs(4);
/// Who waits for less than this part of the time does not lack anything.
const WAITS: f64 = 0.15;
/// Getting less than this part of what should be there is a lack...
const LACK: f64 = 0.75;
/// ...and more than this part is none any more.
const ENOUGH: f64 = 0.9;
/// For so long is remembered what was found, when nobody wants anything any more.
const MEMORY: Duration = Duration::from_secs(120);

/// What threads have done so far, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// On a CPU.
    pub ran: u64,
    /// Waiting for one.
    pub waited: u64,
}

/// Every thread of the jobs by process and thread number.
pub type Threads = BTreeMap<(i32, i32), Times>;

/// What was found in a time.
#[derive(Debug, Clone, Copy)]
struct Span {
    ended: Instant,
    length: Duration,
    ran: f64,
    waited: f64,
}

/// The looks of the last seconds.
#[derive(Debug, Default)]
pub struct Account {
    last: Option<(Instant, Threads)>,
    spans: VecDeque<Span>,
    /// Cores' worth of time that the machine was found to give, and when.
    found: Option<(f64, Instant)>,
}

impl Account {
    /// Takes one more look into account. `nominal`: cores as far as quotas are known. What the machine gives, where it
    /// is found to be less.
    pub fn see(&mut self, now: Instant, threads: Threads, nominal: f64) -> Option<f64> {
        if let Some((before, last)) = self.last.take() {
            // A thread that was not there before may have run elsewhere.
            let (mut ran, mut waited) = (0, 0);
            for (key, times) in &threads {
                if let Some(old) = last.get(key) {
                    ran += times.ran.saturating_sub(old.ran);
                    waited += times.waited.saturating_sub(old.waited);
                }
            }
            let length = now.saturating_duration_since(before);
            let (ran, waited) = (ran as f64 / 1e9, waited as f64 / 1e9);
            self.spans.push_back(Span { ended: now, length, ran, waited });
        }
        self.last = Some((now, threads));
        let is_old = |span: &Span| now.saturating_duration_since(span.ended) >= WINDOW;
        while self.spans.front().is_some_and(is_old) {
            self.spans.pop_front();
        }
        self.judge(now, nominal);
        self.found.map(|(cores, _)| cores)
    }

    fn judge(&mut self, now: Instant, nominal: f64) {
        let lacked = Sum::of(self.spans.iter().filter(|span| span.lacks()));
        let content = Sum::of(self.spans.iter().filter(|span| !span.lacks()));
        let known = self.found.filter(|(cores, _)| *cores < nominal);
        self.found = if lacked.seconds >= LEAST.as_secs_f64() {
            // Only the time in which more was wanted says what there is.
            let expected = (lacked.ran + lacked.waited).min(nominal);
            let limit = if known.is_some() { ENOUGH } else { LACK };
            (lacked.ran < limit * expected).then_some((lacked.ran, now))
        } else {
            let got_more =
                |cores: f64| content.seconds >= LEAST.as_secs_f64() && content.ran > cores / ENOUGH;
            known.filter(|(cores, at)| {
                !got_more(*cores) && now.saturating_duration_since(*at) < MEMORY
            })
        };
    }
}

impl Span {
    /// Whether more was wanted than there was.
    fn lacks(&self) -> bool {
        self.waited > WAITS * (self.ran + self.waited)
    }
}

/// Times put together: cores' worth of them.
struct Sum {
    seconds: f64,
    ran: f64,
    waited: f64,
}

impl Sum {
    fn of<'a>(spans: impl Iterator<Item = &'a Span> + Clone) -> Self {
        let sum = |of: fn(&Span) -> f64| spans.clone().map(of).sum::<f64>();
        let seconds = sum(|span| span.length.as_secs_f64());
        let part = |time: f64| if seconds > 0.0 { time / seconds } else { 0.0 };
        Self { seconds, ran: part(sum(|span| span.ran)), waited: part(sum(|span| span.waited)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes on for so many seconds in which so many threads want to run and get so many cores.
    struct World {
        account: Account,
        now: Instant,
        times: Times,
        nominal: f64,
    }

    impl World {
        fn new(nominal: f64) -> World {
            let (account, times) = (Account::default(), Times::default());
            World { account, now: Instant::now(), times, nominal }
        }

        fn run(&mut self, seconds: u32, threads: f64, cores: f64) -> Option<f64> {
            let mut found = None;
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                let got = threads.min(cores);
                self.times.ran += (got * 1e9) as u64;
                self.times.waited += ((threads - got) * 1e9) as u64;
                let all = Threads::from([((1, 1), self.times)]);
                found = self.account.see(self.now, all, self.nominal);
            }
            found
        }
    }

    fn close(found: Option<f64>, cores: f64) -> bool {
        found.is_some_and(|found| (found - cores).abs() < 0.02)
    }

    #[test]
    fn a_hidden_quota_is_found() {
        let mut world = World::new(2.0);
        assert_eq!(world.run(3, 4.0, 0.6), None);
        let found = world.run(4, 4.0, 0.6);
        assert!(close(found, 0.6), "{found:?}");
        // Halved, and given back.
        let found = world.run(9, 4.0, 0.3);
        assert!(close(found, 0.3), "{found:?}");
        assert_eq!(world.run(10, 4.0, 2.0), None);
    }

    #[test]
    fn who_gets_what_is_known_lacks_nothing() {
        assert_eq!(World::new(0.6).run(20, 4.0, 0.6), None);
        assert_eq!(World::new(0.6).run(20, 4.0, 0.5), None);
        assert_eq!(World::new(4.0).run(20, 3.0, 4.0), None);
        assert_eq!(World::new(4.0).run(20, 0.2, 4.0), None);
    }

    #[test]
    fn what_was_found_is_kept_while_nobody_computes_and_not_for_ever() {
        let mut world = World::new(2.0);
        world.run(9, 4.0, 0.6);
        assert!(close(world.run(60, 0.0, 0.6), 0.6));
        assert_eq!(world.run(90, 0.0, 0.6), None);
    }

    #[test]
    fn noise_around_what_should_be_there_is_none() {
        let mut world = World::new(0.6);
        for second in 0..600 {
            let cores = if second % 3 == 0 { 0.35 } else { 0.6 };
            assert_eq!(world.run(1, 4.0, cores), None, "{second}");
        }
    }

    #[test]
    fn threads_that_come_from_elsewhere_bring_nothing_along() {
        let mut account = Account::default();
        let begin = Instant::now();
        for second in 0..20 {
            let old = Times { ran: 1 << 50, waited: 1 << 50 };
            let threads = Threads::from([((second, second), old)]);
            let now = begin + Duration::from_secs(u64::try_from(second).unwrap());
            assert_eq!(account.see(now, threads, 2.0), None);
        }
    }
}
