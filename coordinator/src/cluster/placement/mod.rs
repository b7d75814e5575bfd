//! Who goes where: a pure function from images and machines to a plan.
//!
//! What it promises, and what `tests/cluster_placement.rs` checks over random clusters: every
//! process is placed once; units stay together; a machine that can't run an image gets none of it;
//! what was on a machine that is still there stays there, unless the user has pinned numbers;
//! what departed goes where it finishes first, and no machine gets more than one unit above its
//! share; among plans that are equal in this, as few bytes as possible are moved; daemons go
//! where most of their children go. With newcomers, what was elsewhere goes there as far as that makes the job's
//! end come sooner ([`advise`] says whether that pays).

mod advice;
mod balance;
mod daemons;
mod exchange;
mod level;

pub use advice::{Advice, Outlook, advise};

use protocol::agent::AgentId;
use protocol::cluster::NodeName;
use protocol::cluster::image::{Requirements, Unit};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// A machine that may be given processes.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: NodeName,
    /// Processes that it takes.
    pub slots: u32,
    /// Cores that jobs may use.
    pub cores: u32,
    /// Relative speed of one core.
    pub speed: f64,
    /// Processes of other jobs that it runs.
    pub busy: u32,
    /// What it offers.
    pub offer: Requirements,
}

impl Machine {
    /// How much it gets done at a time, when it has enough to do.
    fn rate(&self) -> f64 {
        let slots = self.slots.max(1);
        let wide = if self.cores == 0 { slots } else { slots.min(self.cores) };
        self.speed.max(1e-6) * f64::from(wide)
    }

    /// How long it takes where so many processes have the same to do at the same time: none runs on more
    /// than a core.
    fn time(&self, load: u32) -> f64 {
        (f64::from(load) / self.rate()).max(1.0 / self.speed.max(1e-6))
    }
}

/// An instance's image.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// The instance.
    pub instance: AgentId,
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
    /// A newcomer has less to do than its machine.
    Joined,
}

/// Where every unit goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// For each image, in the order of its units.
    pub homes: BTreeMap<AgentId, Vec<(NodeName, Why)>>,
    /// Machines that were left out of consideration for an image, with the reason.
    pub unfit: Vec<(NodeName, AgentId, String)>,
}

/// No machine can run an image.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no machine can run the processes of instance {}: {reasons}", instance.0)]
pub struct NoMachine {
    /// The instance.
    pub instance: AgentId,
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
    bytes: u64,
    home: Option<(usize, Why)>,
}

struct Board<'a> {
    images: &'a [Image],
    machines: &'a [Machine],
    /// Per image, which machines can run it.
    fit: Vec<Vec<bool>>,
    pieces: Vec<Piece>,
    /// Per machine, what it has to do so far.
    load: Vec<u32>,
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
    } else if offer.vdso != wanted.vdso {
        Some("its kernel has another vdso".to_owned())
    } else {
        let lacking = |feature: &&String| !offer.features.contains(feature);
        wanted.features.iter().find(lacking).map(|feature| format!("its CPU lacks {feature}"))
    }
}

/// Plans. `newcomers` get their share of what could stay where it is.
///
/// # Errors
/// Where an image fits no machine.
pub fn place(
    images: &[Image],
    machines: &[Machine],
    wishes: &Wishes,
    newcomers: &BTreeSet<NodeName>,
) -> Result<Plan, NoMachine> {
    let (mut board, unfit) = prepare(images, machines, wishes)?;
    board.settle();
    let moved = board.distribute();
    board.exchange(&moved);
    if !newcomers.is_empty() {
        board.level(&advice::targets(&board, newcomers));
    }
    board.place_daemons();
    Ok(board.plan(unfit))
}

type Unfit = Vec<(NodeName, AgentId, String)>;

fn prepare<'a>(
    images: &'a [Image],
    machines: &'a [Machine],
    wishes: &Wishes,
) -> Result<(Board<'a>, Unfit), NoMachine> {
    let mut unfit = Unfit::new();
    let mut fit = Vec::with_capacity(images.len());
    for image in images {
        let mut row = Vec::with_capacity(machines.len());
        for machine in machines {
            let misfit = misfit(machine, &image.requirements);
            row.push(misfit.is_none());
            if let Some(reason) = misfit {
                unfit.push((machine.name.clone(), image.instance, reason));
            }
        }
        if !row.contains(&true) {
            let of_image = unfit.iter().filter(|(_, instance, _)| *instance == image.instance);
            let reasons: Vec<String> =
                of_image.map(|(name, _, reason)| format!("{name}: {reason}")).collect();
            let reasons =
                if reasons.is_empty() { "none is there".to_owned() } else { reasons.join("; ") };
            return Err(NoMachine { instance: image.instance, reasons });
        }
        fit.push(row);
    }
    let pins =
        machines.iter().map(|machine| wishes.pins.get(&machine.name).copied()).collect::<Vec<_>>();
    let board = Board {
        images,
        machines,
        fit,
        pieces: pieces(images, wishes.whole_nodes),
        load: machines.iter().map(|machine| machine.busy).collect(),
        pins,
        own: vec![0; machines.len()],
    };
    Ok((board, unfit))
}

fn pieces(images: &[Image], whole: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (image, of) in images.iter().enumerate() {
        if whole && !of.units.is_empty() {
            pieces.push(Piece {
                image,
                units: (0..of.units.len()).collect(),
                load: of.units.iter().fold(0, |sum, unit| sum.saturating_add(unit.load)),
                bytes: of.units.iter().fold(0, |sum, unit| sum.saturating_add(unit.bytes)),
                home: None,
            });
        } else {
            pieces.extend(of.units.iter().enumerate().map(|(index, unit)| Piece {
                image,
                units: vec![index],
                load: unit.load,
                bytes: unit.bytes,
                home: None,
            }));
        }
    }
    pieces
}

impl Board<'_> {
    fn plan(&self, unfit: Unfit) -> Plan {
        let mut plan = Plan { unfit, ..Plan::default() };
        for (index, image) in self.images.iter().enumerate() {
            let mut homes = BTreeMap::new();
            for piece in self.pieces.iter().filter(|piece| piece.image == index) {
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
        let load = self.pieces[piece].load;
        self.load[machine] = self.load[machine].saturating_add(load);
        self.own[machine] = self.own[machine].saturating_add(load);
        self.pieces[piece].home = Some((machine, why));
    }

    /// Bytes that have to be moved for a piece to be there.
    fn cost(&self, piece: &Piece, machine: usize) -> u64 {
        let held = self.images[piece.image].holders.contains(&self.machines[machine].name);
        if held { 0 } else { piece.bytes }
    }

    /// What was on a machine that is still there stays, up to the number that it is pinned to.
    fn settle(&mut self) {
        for index in 0..self.pieces.len() {
            let piece = &self.pieces[index];
            let node = &self.images[piece.image].node;
            let Some(machine) = self.machines.iter().position(|machine| machine.name == *node)
            else {
                continue;
            };
            let room = self.pins[machine].is_none_or(|most| {
                piece.load == 0 || self.own[machine].saturating_add(piece.load) <= most
            });
            if self.fit[piece.image][machine] && room {
                self.put(index, machine, Why::Stays);
            }
        }
    }
}
