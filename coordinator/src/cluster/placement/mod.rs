//! Who goes where: a pure function from images and machines to a plan.
//!
//! What it promises, and what `tests/cluster_placement` checks over random clusters: every
//! process is placed once; units stay together; a machine that can't run an image gets none of it;
//! what was on a machine that is still there stays there, unless the user has pinned numbers;
//! what departed goes where it finishes first, and no machine gets more than one unit above its
//! share, unless it is known how much everybody has to do and the job ends sooner so; among plans that are equal in
//! this, as few bytes as possible are moved; daemons go where most of their children go. With machines that are to take
//! over (newcomers, or all, when one of them has become slower), what was elsewhere goes there as far as that makes the
//! job's end come sooner ([`advise`] says whether that pays).

mod advice;
mod balance;
mod daemons;
mod exchange;
mod fit;
mod level;
mod machine;
mod paces;
mod search;
mod spares;
mod traffic;

pub use advice::{Advice, Outlook, advise, crowd};
pub use machine::Machine;
pub use paces::Paces;
pub use spares::waiting;
pub use traffic::suits;

use fit::Fit;
use machine::{Burden, Load};

use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::image::{Requirements, Unit};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// An instance's image.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// The instance.
    pub instance: InstanceId,
    /// The machine on which it ran.
    pub node: NodeName,
    /// Machines that hold the image.
    pub holders: BTreeSet<NodeName>,
    /// What a machine must offer.
    pub requirements: Requirements,
    /// What must stay together.
    pub units: Vec<Unit>,
    /// Every process's parent.
    pub parents: BTreeMap<i32, i32>,
    /// How much processes have to do, where that is known, in what an average one has; others count as average.
    pub work: BTreeMap<i32, f64>,
}

/// What the user wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// All processes of an instance stay together.
    pub whole_nodes: bool,
    /// Numbers of processes, not counting daemons, that are to be on these machines.
    pub pins: BTreeMap<NodeName, u32>,
}

/// Why a unit is where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It was there.
    Stays,
    /// Its machine is not there any more, and here it finishes first.
    Balanced,
    /// The user said so.
    Pinned,
    /// Most of its children are there.
    WithChildren,
    /// One that is to take over has less to do than its machine.
    Joined,
}

/// Where every unit goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// For each image, in the order of its units.
    pub homes: BTreeMap<InstanceId, Vec<(NodeName, Why)>>,
    /// Machines that were left out of consideration for an image, with the reason.
    pub unfit: Vec<(NodeName, InstanceId, String)>,
}

/// No machine can run an image.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no machine can run the processes of instance {}: {reasons}", instance.0)]
pub struct NoMachine {
    /// The instance.
    pub instance: InstanceId,
    /// Why not, machine by machine.
    pub reasons: String,
}

/// What is placed as one.
#[derive(Debug, Clone)]
struct Piece {
    image: usize,
    /// Indices of its units.
    units: Vec<usize>,
    load: u32,
    burden: Burden,
    bytes: u64,
    home: Option<(usize, Why)>,
}

struct Draft<'a> {
    images: &'a [Image],
    machines: &'a [Machine],
    fit: Fit,
    /// By their names.
    places: BTreeMap<&'a NodeName, usize>,
    pieces: Vec<Piece>,
    /// Per machine, what it has to do so far.
    load: Vec<Load>,
    pins: Vec<Option<u32>>,
    /// Per machine, processes of this job that count.
    own: Vec<u32>,
}

/// Why a machine can't run an image.
#[must_use]
pub fn misfit(machine: &Machine, wanted: &Requirements) -> Option<String> {
    let offer = &machine.offer;
    if offer.architecture != wanted.architecture {
        Some(format!("its processor is of {}, not {}", offer.architecture, wanted.architecture))
    } else if offer.page_size != wanted.page_size {
        Some(format!("its pages have {} bytes, not {}", offer.page_size, wanted.page_size))
    } else if offer.vdso != wanted.vdso && !wanted.vdso.is_empty() && !wanted.any_vdso {
        // An image in which nobody lives any more has none.
        Some("its kernel has another vdso".to_owned())
    } else if offer.memory_top != 0 && wanted.memory_top > offer.memory_top {
        Some(format!(
            "its address space ends at {:#x}, and they have memory up to {:#x}",
            offer.memory_top, wanted.memory_top
        ))
    } else {
        let lacking = |feature: &&String| !offer.features.contains(feature);
        wanted.features.iter().find(lacking).map(|feature| format!("its CPU lacks {feature}"))
    }
}

/// Plans. `takers` get their share of what could stay where it is.
///
/// # Errors
/// Where an image fits no machine.
pub fn place(
    images: &[Image],
    machines: &[Machine],
    wishes: &Wishes,
    takers: &BTreeSet<NodeName>,
) -> Result<Plan, NoMachine> {
    let (mut draft, unfit) = prepare(images, machines, wishes)?;
    draft.keep_at_home();
    let moved = draft.distribute();
    // Where nothing is known of anybody's work nobody gets more than a unit above its share.
    if images.iter().any(|image| !image.work.is_empty()) {
        draft.search(&moved);
    }
    draft.exchange(&moved);
    if !takers.is_empty() {
        draft.level(&advice::targets(&draft, takers));
    }
    draft.place_daemons();
    Ok(draft.plan(unfit))
}

type Unfit = Vec<(NodeName, InstanceId, String)>;

fn prepare<'a>(
    images: &'a [Image],
    machines: &'a [Machine],
    wishes: &Wishes,
) -> Result<(Draft<'a>, Unfit), NoMachine> {
    let fit = Fit::new(images, machines);
    let mut unfit = Unfit::new();
    for (index, image) in images.iter().enumerate() {
        let misfits = fit.misfits(index);
        let reason =
            |(machine, reason): (usize, &String)| (&machines[machine].name, reason.clone());
        if fit.is_for_none(index) {
            let reasons = misfits.map(reason).map(|(name, reason)| format!("{name}: {reason}"));
            let reasons: Vec<String> = reasons.collect();
            let reasons =
                if reasons.is_empty() { "none is there".to_owned() } else { reasons.join("; ") };
            return Err(NoMachine { instance: image.instance, reasons });
        }
        let misfits = misfits.map(reason);
        unfit.extend(misfits.map(|(name, reason)| (name.clone(), image.instance, reason)));
    }
    let pins =
        machines.iter().map(|machine| wishes.pins.get(&machine.name).copied()).collect::<Vec<_>>();
    let draft = Draft {
        images,
        machines,
        fit,
        places: machines.iter().map(|machine| &machine.name).zip(0..).collect(),
        pieces: pieces(images, wishes.whole_nodes),
        load: machines.iter().map(|machine| Load::of(machine.busy)).collect(),
        pins,
        own: vec![0; machines.len()],
    };
    Ok((draft, unfit))
}

fn pieces(images: &[Image], whole: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (image, of) in images.iter().enumerate() {
        let all: Vec<usize> = (0..of.units.len()).collect();
        let together: Vec<Vec<usize>> = if whole && !all.is_empty() {
            vec![all]
        } else {
            all.into_iter().map(|index| vec![index]).collect()
        };
        for indices in together {
            let units = || indices.iter().map(|index| &of.units[*index]);
            pieces.push(Piece {
                image,
                load: units().fold(0, |sum, unit| sum.saturating_add(unit.load)),
                burden: units().fold(Burden::default(), |sum, unit| {
                    let unit = burden(of, unit);
                    Burden {
                        count: sum.count.saturating_add(unit.count),
                        work: sum.work + unit.work,
                        heaviest: sum.heaviest.max(unit.heaviest),
                    }
                }),
                bytes: units().fold(0, |sum, unit| sum.saturating_add(unit.bytes)),
                units: indices,
                home: None,
            });
        }
    }
    pieces
}

/// What a unit has to do: of those of its processes of which nothing is known, what an average one has.
fn burden(image: &Image, unit: &Unit) -> Burden {
    let known: Vec<f64> = unit
        .pids
        .iter()
        .filter_map(|pid| image.work.get(pid).copied())
        .filter(|work| work.is_finite() && *work > 0.0)
        .take(usize::try_from(unit.load).unwrap_or(usize::MAX))
        .collect();
    let others = unit.load.saturating_sub(u32::try_from(known.len()).unwrap_or(u32::MAX));
    let average = if others > 0 { 1.0 } else { 0.0 };
    Burden {
        count: unit.load,
        work: known.iter().sum::<f64>() + f64::from(others),
        heaviest: known.into_iter().fold(average, f64::max),
    }
}

impl Draft<'_> {
    fn plan(&self, unfit: Unfit) -> Plan {
        let mut plan = Plan { unfit, ..Plan::default() };
        // In the order of their images.
        let mut pieces = self.pieces.iter().peekable();
        for (index, image) in self.images.iter().enumerate() {
            let mut homes = BTreeMap::new();
            while let Some(piece) = pieces.next_if(|piece| piece.image == index) {
                // Every piece has a home by now: an image without a machine was refused at first.
                let Some((machine, why)) = piece.home else { continue };
                for unit in &piece.units {
                    homes.insert(*unit, (self.machines[machine].name.clone(), why));
                }
            }
            plan.homes.insert(image.instance, homes.into_values().collect());
        }
        plan
    }

    fn put(&mut self, piece: usize, machine: usize, why: Why) {
        let Piece { load, burden, .. } = self.pieces[piece];
        self.load[machine].add(burden);
        self.own[machine] = self.own[machine].saturating_add(load);
        self.pieces[piece].home = Some((machine, why));
    }

    /// Bytes that have to be moved for a piece to be there.
    fn cost(&self, piece: &Piece, machine: usize) -> u64 {
        let held = self.images[piece.image].holders.contains(&self.machines[machine].name);
        if held { 0 } else { piece.bytes }
    }

    /// What was on a machine that is still there stays, up to the number that it is pinned to.
    fn keep_at_home(&mut self) {
        for index in 0..self.pieces.len() {
            let piece = &self.pieces[index];
            let node = &self.images[piece.image].node;
            let Some(machine) = self.places.get(node).copied() else { continue };
            let room = self.pins[machine].is_none_or(|most| {
                piece.load == 0 || self.own[machine].saturating_add(piece.load) <= most
            });
            if self.fit.is(piece.image, machine) && room {
                self.put(index, machine, Why::Stays);
            }
        }
    }
}
