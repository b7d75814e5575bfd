//! How fast a core is: a short fixed piece of work, half integer, half floating point, timed by what it takes of
//! the CPU. How much of the time a core is to be had is another question: see `allowance` and `achieved`.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Rounds of [`work`] in a second of CPU time that count as 1.0: a common core of 2020, about 3 GHz.
const COMMON: f64 = 50_000.0;
/// Rounds of one look, about a millisecond.
const LOOK: u32 = 50;

/// How long is measured.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// At least, unless `most` is over.
    least: Duration,
    looks: u32,
    most: Duration,
}

/// When an agent begins: long enough for a clock that follows the load to have risen.
const FIRST: Effort =
    Effort { least: Duration::from_millis(100), looks: 20, most: Duration::from_secs(1) };
/// Again, while a job runs: 5 ms of CPU time.
const AGAIN: Effort = Effort { least: Duration::ZERO, looks: 5, most: Duration::from_secs(1) };
/// All cores at work.
const TOGETHER: Effort =
    Effort { least: Duration::from_millis(60), looks: 20, most: Duration::from_millis(300) };
/// Differences between one core and all that are less than this are chance.
const LIKE_ONE: f64 = 0.92;
/// Threads at most that are made to keep all cores busy.
const MOST_THREADS: u32 = 256;
/// For how long is looked which part of the time this process gets: five periods of a quota as the kernel sets it (100 ms).
const SHARE_WINDOWS: u32 = 5;
const SHARE_WINDOW: Duration = Duration::from_millis(100);

/// Speed of one core, 1.0 a common one: the best of many short looks by CPU time, so that a busy machine
/// measures the same. Where CPU time cannot be had, by the clock.
#[must_use]
pub fn measure() -> f64 {
    best(&looks(FIRST))
}

/// The same in a twentieth of the time.
#[must_use]
pub fn measure_again() -> f64 {
    best(&looks(AGAIN))
}

/// Speed of each of so many cores while all are at work: they may share units, caches, and heat.
#[must_use]
pub fn measure_all(cores: u32, one: f64) -> f64 {
    if cores < 2 {
        return one;
    }
    let cores = cores.min(MOST_THREADS);
    let speeds = together(cores, || middle(looks(TOGETHER)));
    let mean = speeds.iter().sum::<f64>() / speeds.len().max(1) as f64;
    if mean > 0.0 && mean < one * LIKE_ONE { mean } else { one }
}

/// Cores' worth of time that this process gets when it wants so many, by the clock: for machines that don't show
/// their quotas. The best of several windows, since what others do at the same time is no quota.
#[must_use]
pub fn measure_share(cores: u32) -> f64 {
    let cores = cores.clamp(1, MOST_THREADS);
    let mut got = vec![0.0; SHARE_WINDOWS as usize];
    for shares in together(cores, shares) {
        for (sum, share) in got.iter_mut().zip(shares) {
            *sum += share;
        }
    }
    // A quota of a longer period shows in all windows together, if not in each.
    let mean = got.iter().sum::<f64>() / got.len().max(1) as f64;
    let most = got.into_iter().fold(0.0, f64::max);
    let found =
        if mean > 0.9 * f64::from(cores) { f64::from(cores) } else { most.min(1.25 * mean) };
    found.min(f64::from(cores))
}

/// In each window, which part of it this thread ran.
fn shares() -> Vec<f64> {
    let mut state = 1;
    let mut found = Vec::new();
    for _ in 0..SHARE_WINDOWS {
        let (clock, before) = (Instant::now(), cpu_time());
        while clock.elapsed() < SHARE_WINDOW {
            for _ in 0..LOOK {
                state = work(black_box(state));
            }
        }
        let wall = clock.elapsed().as_secs_f64();
        let cpu = cpu_time().zip(before).and_then(|(end, begin)| end.checked_sub(begin));
        found.push(cpu.map_or(1.0, |cpu| cpu.as_secs_f64() / wall));
    }
    black_box(state);
    found
}

/// The same on so many threads that begin at once. Threads that cannot be had are left out.
fn together<T: Send>(count: u32, measure: impl Fn() -> T + Sync) -> Vec<T> {
    let others = count.saturating_sub(1) as usize;
    // Whoever began would wait for ever for one that did not: so nobody waits, but for a moment.
    let start = Instant::now() + Duration::from_millis(5);
    let run = || {
        thread::sleep(start.saturating_duration_since(Instant::now()));
        measure()
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..others)
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, run).ok())
            .collect();
        let own = run();
        let joined = running.into_iter().filter_map(|thread| thread.join().ok());
        std::iter::once(own).chain(joined).collect()
    })
}

/// Speeds that single looks found.
fn looks(effort: Effort) -> Vec<f64> {
    let begin = Instant::now();
    let (mut state, mut found) = (1, Vec::new());
    while begin.elapsed() < effort.least || found.len() < effort.looks as usize {
        if begin.elapsed() >= effort.most && !found.is_empty() {
            break;
        }
        let (clock, before) = (Instant::now(), cpu_time());
        for _ in 0..LOOK {
            state = work(black_box(state));
        }
        let cpu = cpu_time().zip(before).and_then(|(end, begin)| end.checked_sub(begin));
        let spent = cpu.filter(|cpu| !cpu.is_zero()).unwrap_or_else(|| clock.elapsed());
        found.push(f64::from(LOOK) / spent.as_secs_f64() / COMMON);
    }
    black_box(state);
    found
}

fn best(looks: &[f64]) -> f64 {
    looks.iter().copied().fold(0.0, f64::max)
}

fn middle(mut looks: Vec<f64>) -> f64 {
    looks.sort_by(f64::total_cmp);
    looks.get(looks.len() / 2).copied().unwrap_or(0.0)
}

fn cpu_time() -> Option<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    Some(Duration::new(u64::try_from(time.tv_sec()).ok()?, u32::try_from(time.tv_nsec()).ok()?))
}

/// Each step depends on the one before, so that no compiler and no core can skip any.
fn work(seed: u64) -> u64 {
    let mut integer = seed | 1;
    let mut real = 1.0_f64;
    for _ in 0..2_000 {
        // xorshift64 (Marsaglia 2003).
        integer ^= integer << 13;
        integer ^= integer >> 7;
        integer ^= integer << 17;
        real = real.mul_add(0.999_999, 0.5) / 1.000_001;
    }
    integer ^ real.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_has_a_speed() {
        let speed = measure();
        assert!(speed.is_finite() && speed > 0.0, "{speed}");
        let again = measure_again();
        assert!(again > speed / 10.0 && again < speed * 3.0, "{speed}, {again}");
    }

    #[test]
    fn all_cores_are_no_faster_than_one() {
        let one = measure();
        assert!((measure_all(1, one) - one).abs() < 1e-12);
        let all = measure_all(2, one);
        assert!(all > 0.0 && all <= one, "{one}, {all}");
    }

    #[test]
    fn nobody_gets_more_time_than_there_is() {
        let share = measure_share(2);
        assert!(share > 0.0 && share <= 2.0, "{share}");
    }
}
