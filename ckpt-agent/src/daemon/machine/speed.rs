//! How fast a core is: a short fixed piece of work, half integer, half floating point.

use std::hint::black_box;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// For how long is measured.
const LENGTH: Duration = Duration::from_millis(100);

/// Rounds of [`work`] in a second of CPU time that count as 1.0: a common core of 2020, about 3 GHz.
const COMMON: f64 = 50_000.0;

/// Rounds of one look, about a millisecond.
const LOOK: u32 = 50;
/// Looks at least, unless that takes [`LONGEST`].
const LOOKS: u32 = 20;
/// The longest that may be spent on it.
const LONGEST: Duration = Duration::from_secs(1);

/// Speed of one core, 1.0 a common one: the best of many short looks by CPU time, so that a busy machine
/// measures the same. Where CPU time cannot be had, by the clock.
#[must_use]
pub fn measure() -> f64 {
    let begin = Instant::now();
    let (mut looks, mut state, mut best) = (0, 1, 0.0_f64);
    while (begin.elapsed() < LENGTH || looks < LOOKS) && begin.elapsed() < LONGEST {
        let (clock, cpu_begin) = (Instant::now(), cpu_time());
        for _ in 0..LOOK {
            state = work(black_box(state));
        }
        let cpu = cpu_time().zip(cpu_begin).and_then(|(end, begin)| end.checked_sub(begin));
        let spent = cpu.filter(|cpu| !cpu.is_zero()).unwrap_or_else(|| clock.elapsed());
        best = best.max(f64::from(LOOK) / spent.as_secs_f64());
        looks += 1;
    }
    black_box(state);
    best / COMMON
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
    }
}
