//! What a job's coordinator may be told to do differently, and its limits.

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// When checkpoints fall due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Only on demand.
    OnDemand,
    /// Every so many nanoseconds, more than 0.
    Every(u64),
    /// 30 s at first; then long enough that pauses take at most 1 % of the time and writing at
    /// most a quarter, between 10 s and an hour.
    Auto,
}

impl Interval {
    /// The first interval in nanoseconds; None on demand.
    pub(crate) fn first(self) -> Option<u64> {
        match self {
            Interval::OnDemand => None,
            Interval::Every(interval) => Some(interval.max(1)),
            Interval::Auto => Some(30 * SECOND),
        }
    }

    /// The interval after a checkpoint that paused and lasted this long.
    pub(crate) fn after(self, pause_ns: u64, lasted_ns: u64) -> Option<u64> {
        match self {
            Interval::Auto => {
                let wanted = pause_ns.saturating_mul(100).max(lasted_ns.saturating_mul(4));
                Some(wanted.clamp(10 * SECOND, 3600 * SECOND))
            }
            other => other.first(),
        }
    }
}

/// How long a step may take, in nanoseconds.
///
/// The agent keeps the limits of freezing and quiescing itself, since it can name the process or
/// connection; the coordinator's are longer by what an answer may take on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Stopping all threads.
    pub freeze: u64,
    /// Emptying the streams.
    pub drain: u64,
    /// Bringing connections to rest.
    pub quiesce: u64,
    /// Recording objects and memory.
    pub snapshot: u64,
    /// Letting the job run again.
    pub resume: u64,
    /// Writing, without any sign of progress.
    pub write: u64,
    /// Marking the commit.
    pub commit: u64,
    /// From abandoning a checkpoint to telling the agent again.
    pub abandon: u64,
    /// From one signal that is to end the job to the next, harder one.
    pub grace: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // The agent keeps its own limit of 2 s and names the culprit; these are for an agent that is silent.
            freeze: 10 * SECOND,
            drain: 2 * SECOND,
            quiesce: 10 * SECOND,
            snapshot: 10 * SECOND,
            resume: 10 * SECOND,
            write: 60 * SECOND,
            commit: 30 * SECOND,
            abandon: 10 * SECOND,
            grace: 10 * SECOND,
        }
    }
}

/// How a job is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// When checkpoints fall due.
    pub interval: Interval,
    /// Committed checkpoints kept, at least 1.
    pub keep: usize,
    /// Places asked for in which an image is durable, at least 1.
    pub copies: u32,
    /// Limits of the steps.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            interval: Interval::Every(30 * SECOND),
            keep: 2,
            copies: 1,
            limits: Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_follows_the_cost() {
        let millisecond = SECOND / 1000;
        assert_eq!(Interval::Auto.after(10 * millisecond, SECOND), Some(10 * SECOND));
        assert_eq!(Interval::Auto.after(500 * millisecond, SECOND), Some(50 * SECOND));
        assert_eq!(Interval::Auto.after(millisecond, 30 * SECOND), Some(120 * SECOND));
        assert_eq!(Interval::Auto.after(100 * SECOND, SECOND), Some(3600 * SECOND));
        assert_eq!(Interval::OnDemand.after(SECOND, SECOND), None);
    }
}
