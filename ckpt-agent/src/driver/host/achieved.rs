//! What the processes of jobs have really got of a machine's CPUs.
//!
//! A thread that may run either runs or waits for a CPU; the kernel counts both
//! (Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat), and time in which a quota holds it back is
//! waiting, too. So what all threads ran in a second is what the machine gave, if some of them wanted more all the time:
//! where those waited a good part of it although the cores that are known of would have sufficed, that is what the
//! machine has. Threads that sleep in between want what they get, however long each of their turns had to wait; of
//! them nothing is learned.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// For how long looks are put together, so that a burst of somebody else's work is no change of the machine.
const WINDOW: Duration = Duration::from_secs(8);
/// The least time that says anything.
const LEAST: Duration = Duration::from_secs(4);
/// Who ran or waited for this part of the time wanted to run all the time.
const HUNGRY: f64 = 0.9;
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

impl Times {
    /// Of a /proc/PID/schedstat: "RAN WAITED SLICES", ns (Documentation/scheduler/sched-stats.rst).
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        Some(Self { ran: numbers.next()?.ok()?, waited: numbers.next()?.ok()? })
    }
}

/// Every thread of the jobs by process and thread number.
pub type Threads = BTreeMap<(i32, i32), Times>;

/// What was found in a time.
#[derive(Debug, Clone, Copy)]
struct Span {
    ended: Instant,
    length: Duration,
    /// Seconds on a CPU, of all threads.
    ran: f64,
    /// Threads that wanted to run all the time.
    hungry: f64,
    /// Seconds that those waited.
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
            let length = now.saturating_duration_since(before);
            let mut span = Span { ended: now, length, ran: 0.0, hungry: 0.0, waited: 0.0 };
            for (key, times) in &threads {
                // A thread that was not there before may have run elsewhere.
                let Some(old) = last.get(key) else { continue };
                let ran = times.ran.saturating_sub(old.ran) as f64 / 1e9;
                let waited = times.waited.saturating_sub(old.waited) as f64 / 1e9;
                span.ran += ran;
                if ran + waited >= HUNGRY * length.as_secs_f64() {
                    span.hungry += 1.0;
                    span.waited += waited;
                }
            }
            self.spans.push_back(span);
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
            let expected = lacked.hungry.min(nominal);
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
        self.hungry > 0.0 && self.waited > WAITS * self.hungry * self.length.as_secs_f64()
    }
}

/// Time put together.
struct Sum {
    seconds: f64,
    /// Cores that were at work.
    ran: f64,
    /// Cores that were wanted all the time.
    hungry: f64,
}

impl Sum {
    fn of<'a>(spans: impl Iterator<Item = &'a Span> + Clone) -> Self {
        let sum = |of: fn(&Span) -> f64| spans.clone().map(of).sum::<f64>();
        let seconds = sum(|span| span.length.as_secs_f64());
        let part = |time: f64| if seconds > 0.0 { time / seconds } else { 0.0 };
        let hungry = sum(|span| span.hungry * span.length.as_secs_f64());
        Self { seconds, ran: part(sum(|span| span.ran)), hungry: part(hungry) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes on for so many seconds in which so many threads want to run and get so many cores.
    struct World {
        account: Account,
        now: Instant,
        times: [Times; 4],
        nominal: f64,
    }

    impl World {
        fn new(nominal: f64) -> World {
            let (account, times) = (Account::default(), [Times::default(); 4]);
            World { account, now: Instant::now(), times, nominal }
        }

        /// `threads` may be less than one: it sleeps in between.
        fn run(&mut self, seconds: u32, threads: f64, cores: f64) -> Option<f64> {
            let each = threads.min(cores) / threads.ceil().max(1.0);
            let late = (threads - threads.min(cores)) / threads.ceil().max(1.0);
            self.take_turns(seconds, threads.ceil() as usize, each, late)
        }

        /// Goes on with so many threads, each of which runs and waits for such parts of the time.
        fn take_turns(&mut self, seconds: u32, threads: usize, run: f64, wait: f64) -> Option<f64> {
            let mut found = None;
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                for times in &mut self.times[..threads] {
                    times.ran += (run * 1e9) as u64;
                    times.waited += (wait * 1e9) as u64;
                }
                let all = (1..).map(|thread| (1, thread)).zip(self.times).collect();
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
    fn who_sleeps_in_between_lacks_nothing() {
        // Ranks that look for something now and then, and wait for each other whenever they do.
        assert_eq!(World::new(0.45).take_turns(60, 4, 0.04, 0.05), None);
        assert_eq!(World::new(0.45).take_turns(60, 4, 0.05, 0.4), None);
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
