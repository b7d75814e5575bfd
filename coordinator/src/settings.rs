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
    /// 30 s at first; then what loses the least time ([`Chosen`]).
    Auto,
}

/// Departures of machines that a job has suffered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Departures {
    /// How many rolled it back.
    pub count: u32,
    /// In how many nanoseconds.
    pub ran_ns: u64,
    /// On how many machines it runs; 0 counts as one.
    pub machines: u32,
}

impl Departures {
    /// Nanoseconds from one to the next. Before anything is known, it is reckoned that each machine leaves once an hour; the first of these
    /// departures counts as if it had been seen.
    fn apart_ns(self) -> f64 {
        let first = HOUR as f64 / f64::from(self.machines.max(1));
        (self.ran_ns as f64 + first) / (f64::from(self.count) + 1.0)
    }
}

/// An interval that was chosen, and why.
///
/// J. W. Young, "A first order approximation to the optimum checkpoint interval", 1974: with a cost of C each, and
/// a loss every M, the least time is lost at sqrt(2 C M). J. T. Daly, 2006, gives better terms where C is not small
/// against M; there the floor holds here. The cost is the pause, and the part of the machine that writing takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// It, in nanoseconds.
    pub interval_ns: u64,
    /// What a checkpoint costs.
    pub cost_ns: u64,
    /// From one departure to the next.
    pub apart_ns: u64,
    /// Whether a shorter one would be better, if checkpoints did not pile up or the job would not stand still too often.
    pub is_floor: bool,
}

const HOUR: u64 = 3600 * SECOND;
/// The shortest interval that is chosen.
const SHORTEST: u64 = 2 * SECOND;
/// Writing goes on behind the job's back, at a lower priority: so much of its time is lost to the job.
const WRITING: f64 = 0.1;

impl Chosen {
    fn of(pause_ns: u64, lasted_ns: u64, departures: Departures) -> Chosen {
        let behind = lasted_ns.saturating_sub(pause_ns) as f64;
        let cost = pause_ns as f64 + WRITING * behind;
        let apart = departures.apart_ns();
        // Saturating: more than any clock has.
        let wanted = (2.0 * cost * apart).sqrt() as u64;
        let floor = lasted_ns.saturating_mul(4).max(pause_ns.saturating_mul(20)).max(SHORTEST);
        Chosen {
            interval_ns: wanted.max(floor).min(HOUR),
            cost_ns: cost as u64,
            apart_ns: apart as u64,
            is_floor: wanted < floor,
        }
    }
}

impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let (cost, apart) = (seconds(self.cost_ns), seconds(self.apart_ns));
        write!(
            f,
            "a checkpoint costs {cost:.2} s, and a departure every {apart:.0} s is reckoned with"
        )?;
        if self.is_floor {
            write!(f, "; any shorter, they would pile up")?;
        }
        Ok(())
    }
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

    /// What is chosen after a checkpoint that paused and lasted this long; None where the user has.
    pub(crate) fn choose(
        self,
        pause_ns: u64,
        lasted_ns: u64,
        departures: Departures,
    ) -> Option<Chosen> {
        (self == Interval::Auto).then(|| Chosen::of(pause_ns, lasted_ns, departures))
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

    const MILLISECOND: u64 = SECOND / 1000;

    fn chosen(pause_ms: u64, lasted_ms: u64, count: u32, ran_s: u64) -> Chosen {
        let departures = Departures { count, ran_ns: ran_s * SECOND, machines: 1 };
        Interval::Auto.choose(pause_ms * MILLISECOND, lasted_ms * MILLISECOND, departures).unwrap()
    }

    #[test]
    fn auto_is_youngs_interval() {
        // 0.1 s of pause and a tenth of 1 s; a departure every 2 h is reckoned with: sqrt(2 x 0.2 x 7200).
        let found = chosen(100, 1100, 0, 3600);
        assert_eq!((found.cost_ns, found.apart_ns), (200 * MILLISECOND, 7200 * SECOND));
        assert_eq!(found.interval_ns / MILLISECOND, 53_665);
        assert!(!found.is_floor);
        let text = found.to_string();
        assert!(
            text.starts_with("a checkpoint costs 0.20 s, and a departure every 7200 s"),
            "{text}"
        );
    }

    #[test]
    fn more_machines_leave_more_often() {
        let of = |machines| Departures { machines, ..Departures::default() };
        assert_eq!(of(0).apart_ns() as u64, HOUR);
        assert_eq!(of(3).apart_ns() as u64, HOUR / 3);
    }

    #[test]
    fn more_departures_and_cheaper_checkpoints_make_it_shorter() {
        let all: Vec<u64> = (0..8).map(|count| chosen(50, 500, count, 600).interval_ns).collect();
        assert!(all.windows(2).all(|two| two[1] < two[0]), "{all:?}");
        assert!(chosen(10, 100, 0, 600).interval_ns < chosen(50, 500, 0, 600).interval_ns);
    }

    #[test]
    fn checkpoints_never_pile_up() {
        for (pause, lasted) in [(1, 1), (100, 20_000), (4000, 4100), (10, 300_000)] {
            for count in [0, 5, 1000] {
                let found = chosen(pause, lasted, count, 60);
                assert!(found.interval_ns >= (4 * lasted * MILLISECOND).min(HOUR), "{found}");
                assert!(found.interval_ns >= (20 * pause * MILLISECOND).max(SHORTEST), "{found}");
                assert!(found.interval_ns <= HOUR);
            }
        }
        let found = chosen(100, 20_000, 1000, 60);
        assert!(found.is_floor && found.to_string().contains("pile up"), "{found}");
        assert_eq!(chosen(u64::MAX / SECOND, u64::MAX / SECOND, 0, 0).interval_ns, HOUR);
    }

    #[test]
    fn what_the_user_chose_stays() {
        assert_eq!(Interval::OnDemand.choose(SECOND, SECOND, Departures::default()), None);
        assert_eq!(Interval::Every(1).choose(SECOND, SECOND, Departures::default()), None);
    }
}
