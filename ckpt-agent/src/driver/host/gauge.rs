//! How fast this machine is now: a thread looks once a second at its quotas, at what the processes of jobs get, and,
//! while there are any, every ten seconds at the speed of a core: phones get slower when they are hot.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::achieved::{Account, Threads, Times};
use super::allowance::Allowance;
use super::clock::{Clock, StolenTime};
use super::efforts::Idling;
use super::speed;
use ckpt_engine::proc::{descendants, read_text, thread_numbers};
use protocol::room::Room;

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);
/// From one measurement of a core to the next, while nothing points to a change.
const AGAIN: Duration = Duration::from_secs(10);
/// Measurements of which the best counts: a single one may be disturbed.
const BEST_OF: usize = 3;
/// A core that is slower than this part of what it was with all cores at work is not only shared.
const SLOWER: f64 = 0.85;
/// Threads of jobs that are looked at.
const MOST_THREADS: usize = 2048;

/// What is found when an agent begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nominal {
    /// CPUs, part of one counted as a whole.
    pub cpus: u32,
    /// Cores' worth of time.
    pub cores: f64,
    /// Speed of one core.
    pub speed: f64,
    /// Of each while all are at work.
    pub speed_all: f64,
    /// Whether the user has said how fast a core is: then nothing is measured, and quotas alone count.
    pub is_given: bool,
    /// How much less than quotas allow was to be had, where quotas cannot be read.
    share: f64,
}

/// What is found later.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Cores' worth of time.
    pub cores: f64,
    /// Whether that is what processes of jobs have really got.
    pub achieved: bool,
    /// Speed of one core, if it was measured again.
    pub speed: Option<f64>,
    /// On the disk of the agent's folder.
    pub room: Option<Room>,
}

impl Nominal {
    /// Measures this machine: takes a fifth of a second, and half a second more where quotas cannot be read.
    #[must_use]
    pub fn measure(given: Option<f64>) -> Self {
        let allowance = Allowance::read();
        let cores = allowance.cores();
        let cpus = cores.ceil() as u32;
        if let Some(speed) = given {
            return Self { cpus, cores, speed, speed_all: speed, is_given: true, share: 1.0 };
        }
        let share = if allowance.is_certain {
            1.0
        } else {
            let share = speed::measure_share(cpus) / f64::from(cpus);
            if share < SLOWER { share } else { 1.0 }
        };
        let cores = cores * share;
        let cpus = cores.ceil() as u32;
        let speed = speed::measure();
        let speed_all = speed::measure_all(cpus, speed);
        Self { cpus, cores, speed, speed_all, is_given: false, share }
    }
}

/// The thread, and what it has found.
#[derive(Debug, Clone)]
pub struct Gauge {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Inits of instances that run here.
    inits: Mutex<Vec<i32>>,
    reading: Mutex<Reading>,
    /// By init, how its processes wait.
    idling: Mutex<BTreeMap<i32, u32>>,
}

impl Gauge {
    /// Starts it, for an agent of that folder.
    ///
    /// # Errors
    /// Where there can be no thread.
    pub fn start(nominal: Nominal, folder: &Path) -> std::io::Result<Self> {
        let reading = Reading { cores: nominal.cores, achieved: false, speed: None, room: None };
        let mut disk = Disk::of(folder);
        let shared = Arc::new(Shared {
            inits: Mutex::default(),
            reading: Mutex::new(reading),
            idling: Mutex::default(),
        });
        let own = Arc::downgrade(&shared);
        let mut watch = Watch::new(nominal);
        let mut idling: BTreeMap<i32, Idling> = BTreeMap::new();
        thread::Builder::new().name("gauge".into()).spawn(move || {
            // Ends with the last who reads it.
            while let Some(shared) = own.upgrade() {
                let inits = lock(&shared.inits).clone();
                let room = disk.look(Instant::now());
                let reading = Reading { room, ..watch.look(&inits) };
                *lock(&shared.reading) = reading;
                idling.retain(|init, _| inits.contains(init));
                for init in &inits {
                    idling.entry(*init).or_default().look(*init);
                }
                let told = idling.iter().filter_map(|(init, one)| Some((*init, one.permille()?)));
                *lock(&shared.idling) = told.collect();
                drop(shared);
                thread::sleep(LOOK);
            }
        })?;
        Ok(Self { shared })
    }

    /// Tells which instances run here, by their inits, and gets what was found last.
    #[must_use]
    pub fn read(&self, inits: Vec<i32>) -> Reading {
        *lock(&self.shared.inits) = inits;
        *lock(&self.shared.reading)
    }

    /// How the processes of an instance wait, by its init, as [`protocol::cluster::image::Efforts`] tells it.
    #[must_use]
    pub fn idle_permille(&self, init: i32) -> Option<u32> {
        lock(&self.shared.idling).get(&init).copied()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The disk on which images are kept.
#[derive(Debug)]
struct Disk {
    folder: PathBuf,
    looked: Option<Instant>,
    room: Option<Room>,
}

impl Disk {
    fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), looked: None, room: None }
    }

    fn look(&mut self, now: Instant) -> Option<Room> {
        let due = |at: Instant| now.saturating_duration_since(at) >= AGAIN;
        if self.looked.is_none_or(due) {
            self.looked = Some(now);
            self.room = Room::of(&self.folder);
        }
        self.room
    }
}

/// What the thread remembers.
#[derive(Debug)]
struct Watch {
    nominal: Nominal,
    account: Account,
    stolen: StolenTime,
    clock: Clock,
    speeds: VecDeque<f64>,
    measured: Instant,
    speed: Option<f64>,
}

impl Watch {
    fn new(nominal: Nominal) -> Self {
        Self {
            nominal,
            account: Account::default(),
            stolen: StolenTime::default(),
            clock: Clock::default(),
            speeds: VecDeque::new(),
            measured: Instant::now(),
            speed: None,
        }
    }

    fn look(&mut self, inits: &[i32]) -> Reading {
        let allowance = Allowance::read();
        let quota = allowance.quota.unwrap_or(f64::INFINITY);
        let cpus = f64::from(allowance.cpus);
        if self.nominal.is_given {
            let cores = quota.min(cpus);
            return Reading { cores, achieved: false, speed: None, room: None };
        }
        let now = Instant::now();
        let there = cpus * self.nominal.share * (1.0 - self.stolen.part());
        let cores = quota.min(there);
        let got = self.account.see(now, threads(inits), cores);
        // Work for a fixed time would wake up a phone that sleeps.
        if !inits.is_empty() {
            self.measure_again(now);
        }
        let (cores, achieved) = (got.unwrap_or(cores), got.is_some());
        Reading { cores, achieved, speed: self.speed, room: None }
    }

    fn measure_again(&mut self, now: Instant) {
        let suspect = self.clock.has_changed() || self.is_in_doubt();
        if !suspect && now.saturating_duration_since(self.measured) < AGAIN {
            return;
        }
        self.measured = now;
        self.speeds.push_back(speed::measure_again());
        while self.speeds.len() > BEST_OF {
            self.speeds.pop_front();
        }
        self.speed = Some(judge(&self.nominal, &self.speeds));
    }

    /// The last measurement says something else than those before: the next ones will tell.
    fn is_in_doubt(&self) -> bool {
        let best = self.speeds.iter().copied().fold(0.0, f64::max);
        self.speeds.back().is_some_and(|last| *last < best * SLOWER)
    }
}

/// A core that is measured while jobs run shares what cores share: it is slower by itself only if it is below what it
/// was at first with all of them at work.
fn judge(nominal: &Nominal, speeds: &VecDeque<f64>) -> f64 {
    let best = speeds.iter().copied().fold(0.0, f64::max);
    let part = best / nominal.speed_all;
    if part < SLOWER { nominal.speed * part } else { nominal.speed }
}

/// Times of all threads below these inits.
fn threads(inits: &[i32]) -> Threads {
    let mut found = Threads::new();
    for init in inits {
        for pid in descendants(*init).unwrap_or_default() {
            for thread in thread_numbers(pid).unwrap_or_default() {
                if found.len() >= MOST_THREADS {
                    return found;
                }
                let path = format!("/proc/{pid}/task/{thread}/schedstat");
                let Ok(Some(text)) = read_text(&path) else { continue };
                if let Some(times) = Times::parse(&text) {
                    found.insert((pid, thread), times);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nominal() -> Nominal {
        Nominal { cpus: 4, cores: 4.0, speed: 1.0, speed_all: 0.6, is_given: false, share: 1.0 }
    }

    #[test]
    fn a_core_that_is_shared_is_not_hot() {
        let judge = |speeds: &[f64]| judge(&nominal(), &speeds.iter().copied().collect());
        assert!((judge(&[0.55]) - 1.0).abs() < 1e-9);
        assert!((judge(&[0.2, 0.61, 0.3]) - 1.0).abs() < 1e-9);
        assert!((judge(&[0.3, 0.3, 0.3]) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_users_word_counts() {
        let nominal = Nominal::measure(Some(3.5));
        assert!(nominal.is_given && (nominal.speed - 3.5).abs() < 1e-9);
        let reading = Watch::new(nominal).look(&[1]);
        assert_eq!((reading.speed, reading.achieved), (None, false));
    }

    #[test]
    fn times_of_this_process_are_found() {
        assert_eq!(Times::parse("12 34 5\n"), Some(Times { ran: 12, waited: 34 }));
        assert_eq!(Times::parse(""), None);
        let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        let found = threads(&[std::process::id() as i32]);
        let _ = child.kill();
        let _ = child.wait();
        assert!(found.keys().any(|(pid, _)| *pid == child.id() as i32));
    }

    #[test]
    fn a_gauge_reads_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let gauge = Gauge::start(Nominal::measure(Some(1.0)), folder.path()).unwrap();
        let reading = gauge.read(Vec::new());
        assert!(reading.cores > 0.0 && !reading.achieved);
    }
}
