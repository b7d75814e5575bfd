//! Which processors the job's programs began on.

use protocol::cluster::baseline::Baseline;

use super::super::graph::{Offer, ProcessImage, offer};
use super::super::sys::cpu_features;
use super::super::trace::ProcessMemory;
use super::stages::ProcessDump;

/// Where the environment begins and ends among the fields of struct prctl_mm_map (prctl(2)).
const ENVIRONMENT: (usize, usize) = (9, 10);
/// The kernel takes no longer one by default (execve(2), a quarter of the stack's limit); whose limit is higher may
/// have it.
const LONGEST_ENVIRONMENT: u64 = 4 << 20;

/// What these were offered when their programs began.
pub fn of(dumps: &[ProcessDump], before: &[Offer]) -> Vec<Offer> {
    let mut offers = Vec::new();
    for dump in dumps {
        note(&mut offers, before, &dump.image, dump.snapshot_pid);
    }
    offers
}

/// What is known from before a restart; what its C library is held to; else what this machine has. `host_pid`: who has
/// its memory.
fn note(offers: &mut Vec<Offer>, before: &[Offer], image: &ProcessImage, host_pid: i32) {
    let mark = offer::mark(&image.auxv);
    let known = before.iter().find(|offer| offer.programs.contains(&mark));
    let features = known.map(|offer| offer.features.clone()).unwrap_or_else(|| {
        match held_to(image, host_pid) {
            Some(baseline) => baseline.features().into_iter().collect(),
            None => cpu_features::to_programs().clone(),
        }
    });
    offer::note(offers, features, mark);
}

/// The set of features that the C library of a process was told to keep to.
fn held_to(image: &ProcessImage, host_pid: i32) -> Option<Baseline> {
    let (from, to) = (image.memory_map[ENVIRONMENT.0], image.memory_map[ENVIRONMENT.1]);
    let length = to.checked_sub(from).filter(|length| *length <= LONGEST_ENVIRONMENT)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    ProcessMemory::of(host_pid).read(from, &mut bytes).ok()?;
    bytes.split(|byte| *byte == 0).find_map(Baseline::of_variable)
}
