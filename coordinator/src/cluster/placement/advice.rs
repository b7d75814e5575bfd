//! Whether a move to other machines pays: a pure function, machines' speeds among its input.
//!
//! The job is taken to be as even as an MPI program: all its processes have the same to do, and it is done
//! when the last one is. How long it will run is not known: as long again as it has run is the best guess that
//! needs no knowledge of the program. What it gains is the part of that time which the better placement
//! saves; a move pays where that is more than the job stands still for it. Against going to and fro: a
//! gain of less than a tenth is none, and after a move of any kind the job runs for ten times as long
//! as it stood still, before the next.

use super::{Draft, Image, Machine, NoMachine, Plan, Wishes, prepare};
use protocol::cluster::NodeName;
use std::collections::BTreeSet;

/// The least part of the remaining time that is worth a move.
const LEAST: f64 = 0.1;
/// How long a job runs after a move before the next, in times of what a move costs.
const REST: f64 = 10.0;

/// What is known of the job's time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// How long it has run.
    pub ran: f64,
    /// How long it has run since it was last restored or moved; endless if it never was.
    pub settled: f64,
    /// How long it stands still for a move, as last measured or else estimated.
    pub cost: f64,
}

/// What a move would bring.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Where every unit would go.
    pub plan: Plan,
    /// The machines that would take some.
    pub takers: BTreeSet<NodeName>,
    /// The time of a piece of the job's work as it is placed now, over that after the move: 1.5 is half as
    /// much again in the same time.
    pub faster: f64,
    /// Seconds saved of those that the job is expected to run yet.
    pub gain: f64,
    /// Whether it is worth it.
    pub pays: bool,
}

/// What moving to these machines would bring. None where nothing can be said: a machine of the job is not among
/// the machines, or its user has said how many processes are to be where.
///
/// # Errors
/// Where an image fits no machine.
pub fn advise(
    images: &[Image],
    machines: &[Machine],
    wishes: &Wishes,
    targets: &BTreeSet<NodeName>,
    outlook: Outlook,
) -> Result<Option<Advice>, NoMachine> {
    if !wishes.pins.is_empty() {
        return Ok(None);
    }
    let (mut draft, unfit) = prepare(images, machines, wishes)?;
    draft.keep_at_home();
    if draft.pieces.iter().any(|piece| piece.load > 0 && piece.home.is_none()) {
        return Ok(None);
    }
    let before = draft.finish();
    draft.level(&self::targets(&draft, targets));
    let after = draft.finish();
    draft.place_daemons();
    let plan = draft.plan(unfit);
    let takers = plan
        .homes
        .values()
        .flatten()
        .filter(|(_, why)| *why == super::Why::Joined)
        .map(|(home, _)| home.clone())
        .collect();
    let saved = if before > 0.0 { 1.0 - after / before } else { 0.0 };
    let gain = saved * outlook.ran;
    let rested = outlook.settled >= REST * outlook.cost;
    Ok(Some(Advice {
        plan,
        takers,
        faster: if after > 0.0 { before / after } else { 1.0 },
        gain,
        pays: saved >= LEAST && gain > outlook.cost && rested,
    }))
}

/// In times of what it takes alone, how long something takes that runs beside the job on the machine with the most to
/// do for its cores: there each process of the job has as much of them.
#[must_use]
pub fn crowd(images: &[Image], machines: &[Machine]) -> f64 {
    let of = |machine: &Machine| {
        let here = images.iter().filter(|image| image.node == machine.name);
        let load: u32 = here.flat_map(|image| &image.units).map(|unit| unit.load).sum();
        let (load, cores) = (f64::from(load), machine.cores.max(f64::EPSILON));
        (load / cores, if load >= cores { 1.0 + load / cores.max(1.0) } else { 1.0 })
    };
    let all = machines.iter().map(of);
    all.max_by(|one, other| one.0.total_cmp(&other.0)).map_or(1.0, |(_, crowd)| crowd)
}

pub(super) fn targets(draft: &Draft<'_>, names: &BTreeSet<NodeName>) -> BTreeSet<usize> {
    let named = draft.machines.iter().enumerate();
    named.filter(|(_, machine)| names.contains(&machine.name)).map(|(index, _)| index).collect()
}
