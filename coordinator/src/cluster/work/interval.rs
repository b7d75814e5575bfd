//! What one interval between two checkpoints tells of how much each process has to do.
//!
//! Where processes wait for each other, as ranks of MPI do whenever they exchange something, all of them come equally far in
//! an interval; so what each computed in it is its part of the work. What it computed is its time on a CPU but for that in
//! which it only looked whether something has come: of that the kernel's part is known, and bounds of the program's. Within these
//! bounds the truth is taken to be where the processes are most alike: where they are alike, that is right, and where they are not,
//! too little is taken for a difference rather than too much. Time on a faster machine counts for more.
//!
//! Where nobody waits for anybody, what each computed says only what it got of a CPU, and nothing is learned: neither
//! of processes that all compute all the time, nor of those that compute most if they differ, since each may
//! have come as far as it could by itself.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Shorter intervals say nothing, in seconds.
const LEAST_TIME: f64 = 0.5;
/// Time on a CPU, of an average process, below which nothing is said, in seconds: the kernel counts in hundredths.
const LEAST_CPU: f64 = 0.05;
/// A process with less of the kernel's time for the program's does not wait by looking.
const LITTLE: f64 = 0.1;
/// The program's time for the kernel's, of who only waits: libraries of MPI have 0.45 to 1.1. What was seen bounds it from above, since
/// those who were seen may have done something else as well.
const LEAST_IDLE: f64 = 0.4;
const MOST_IDLE: f64 = 1.25;
/// Values between these that are tried.
const TRIED: u32 = 16;
/// Somebody must have computed for this part of its time.
const BUSY: f64 = 0.6;
/// Who computed for less than this part of its time waited for others.
const WAITS: f64 = 0.75;
/// Who computed for this part of the time that the busiest one did was waited for.
const WAITED_FOR: f64 = 0.85;
/// Those that were waited for computed equally much, if not more than by this factor.
const EQUAL: f64 = 1.33;

/// What a process did in an interval; times in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spell<K> {
    /// The process, by whatever tells processes apart for the caller.
    pub process: K,
    /// Its machine, by any number.
    pub machine: usize,
    /// Relative speed of a core there.
    pub speed: f64,
    /// On a CPU, in the program.
    pub user: f64,
    /// On a CPU, in the kernel.
    pub system: f64,
    /// Without a CPU that was wanted.
    pub waited: f64,
    /// The interval.
    pub time: f64,
    /// The program's time for the kernel's, of who only waits there, if that is known.
    pub idle: Option<f64>,
}

/// Why an interval tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Silence {
    /// There was too little of it.
    Short,
    /// Computing can't be told from looking for messages.
    Blurred,
    /// Nobody was waited for.
    Idle,
    /// Nobody waited.
    Busy,
    /// Several that waited for nobody did unlike much.
    Apart,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Silence::Short => "too little was done between checkpoints to tell",
            Silence::Blurred => "waiting can't be told from computing",
            Silence::Idle => "nobody computed most of the time",
            Silence::Busy => "nobody waited for anybody",
            Silence::Apart => "those who never waited did unlike much",
        })
    }
}

impl<K> Spell<K> {
    fn ran(&self) -> f64 {
        self.user + self.system
    }

    /// Time on a CPU but for looking, where that is so far from the least that it may be, of 0 to 1; None where it is not known.
    fn computed(&self, tried: f64) -> Option<f64> {
        let most = match self.idle {
            Some(idle) => idle.clamp(0.0, MOST_IDLE),
            None if self.system <= LITTLE * self.user => MOST_IDLE,
            None => return None,
        };
        let least = LEAST_IDLE.min(most);
        Some((self.user - (least + (most - least) * tried) * self.system).max(0.0))
    }

    /// Time on a CPU that it could have had, where the one who had most of its machine had so much.
    fn possible(&self, most: f64) -> f64 {
        let wanted = self.ran() + self.waited;
        let awake =
            if wanted > 0.0 { self.ran() * (self.time / wanted).max(1.0) } else { self.time };
        awake.max(most)
    }
}

/// What each process has to do, in what an average one of them has.
///
/// # Errors
/// Where the interval does not tell.
pub fn shares<K: Ord + Copy>(spells: &[Spell<K>]) -> Result<BTreeMap<K, f64>, Silence> {
    let count = spells.len() as f64;
    let all: f64 = spells.iter().map(Spell::ran).sum();
    if spells.is_empty()
        || all < LEAST_CPU * count
        || spells.iter().any(|spell| spell.time.is_nan() || spell.time < LEAST_TIME)
    {
        return Err(Silence::Short);
    }
    let mut most: BTreeMap<usize, f64> = BTreeMap::new();
    for spell in spells {
        let known = most.entry(spell.machine).or_default();
        *known = known.max(spell.ran());
    }
    let mut found = Vec::new();
    let mut least = f64::INFINITY;
    for tried in 0..=TRIED {
        let tried = f64::from(tried) / f64::from(TRIED);
        let one = parts(spells, &most, tried).ok_or(Silence::Blurred)?;
        let unlike = unlikeness(&one);
        if found.is_empty() || unlike < least {
            (found, least) = (one, unlike);
        }
    }
    let busiest = found.iter().map(|(_, part, _)| *part).fold(0.0, f64::max);
    if busiest < BUSY {
        return Err(Silence::Idle);
    }
    if found.iter().all(|(_, part, _)| *part > WAITS) {
        return Err(Silence::Busy);
    }
    let waited_for = found.iter().filter(|(_, part, _)| *part >= WAITED_FOR * busiest);
    let (least, greatest) = waited_for
        .fold((f64::INFINITY, 0.0_f64), |(least, most), (_, _, work)| {
            (least.min(*work), most.max(*work))
        });
    if greatest > EQUAL * least {
        return Err(Silence::Apart);
    }
    let average = found.iter().map(|(_, _, work)| work).sum::<f64>() / count;
    Ok(found.into_iter().map(|(process, _, work)| (process, work / average)).collect())
}

/// A process, the part of its time in which it computed, and the work that it did in a second.
type Part<K> = (K, f64, f64);

fn parts<K: Copy>(
    spells: &[Spell<K>],
    most: &BTreeMap<usize, f64>,
    tried: f64,
) -> Option<Vec<Part<K>>> {
    let part = |spell: &Spell<K>| {
        let computed = spell.computed(tried)?;
        let possible = spell.possible(most.get(&spell.machine).copied().unwrap_or_default());
        let part = if possible > 0.0 { computed / possible } else { 0.0 };
        Some((spell.process, part, computed * spell.speed / spell.time))
    };
    spells.iter().map(part).collect()
}

/// The mean square of the distance from the average, in averages.
fn unlikeness<K>(parts: &[Part<K>]) -> f64 {
    let count = parts.len() as f64;
    let average = parts.iter().map(|(_, _, work)| work).sum::<f64>() / count;
    parts.iter().map(|(_, _, work)| (work / average - 1.0).powi(2)).sum::<f64>() / count
}
