//! From images and machines to the instances of a new epoch.

use super::departed::Departing;
use crate::cluster::entry::{ImageRecord, InstanceRecord, Move, Origin};
use crate::cluster::job::ledger::Ledger;
use crate::cluster::members::{Member, Members};
use crate::cluster::placement::{self, Image, Machine, NoMachine, Why, Wishes};
use crate::cluster::work::Works;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::agent::{DEPARTED, NodeProfile};
use protocol::cluster::image::{Requirements, Unit};
use protocol::cluster::settings::Placement;
use std::collections::{BTreeMap, BTreeSet};

/// What is to be made.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) instances: BTreeMap<InstanceId, InstanceRecord>,
    /// Processes that count as load, by instance.
    pub(super) load: BTreeMap<InstanceId, u32>,
    pub(super) moves: Vec<Move>,
    /// Lines about machines that were left out.
    pub(super) left_out: Vec<String>,
}

/// What a machine offers, as a placement asks for it.
pub(in crate::cluster) fn offer(profile: &NodeProfile) -> Requirements {
    Requirements {
        architecture: profile.architecture.clone(),
        page_size: profile.page_size,
        vdso: profile.vdso.clone(),
        any_vdso: false,
        features: profile.features.clone(),
        memory_top: profile.memory_top,
    }
}

pub(in crate::cluster) fn machine(name: &NodeName, member: &Member, busy: u32) -> Machine {
    let profile = &member.profile;
    Machine {
        name: name.clone(),
        slots: profile.slots,
        cpus: profile.cores,
        cores: member.cores(),
        speed: member.speed(),
        speed_all: member.speed_all(),
        busy,
        offer: offer(profile),
    }
}

/// Machines for a job.
#[derive(Debug)]
pub(in crate::cluster) struct Offered {
    /// Those that are used.
    pub(in crate::cluster) machines: Vec<Machine>,
    /// Spares that wait: for where none of the others will do.
    pub(super) waiting: Vec<Machine>,
}

/// Machines that may be used for a job: all that are there and may have it but those to be avoided, unless there are
/// no others, and spares that wait. `on`: where its processes are, or were in what it goes on from.
pub(in crate::cluster) fn machines(
    ledger: &Ledger,
    members: &Members,
    busy: &BTreeMap<NodeName, u32>,
    avoid: &BTreeSet<NodeName>,
    on: &BTreeSet<NodeName>,
) -> Offered {
    let all: Vec<Machine> = members
        .usable_for(ledger)
        .map(|(name, member)| machine(name, member, busy.get(name).copied().unwrap_or(0)))
        .collect();
    let good: Vec<Machine> =
        all.iter().filter(|machine| !avoid.contains(&machine.name)).cloned().collect();
    let good = if good.is_empty() { all } else { good };
    let pins = &ledger.settings().place;
    let is_spare = |machine: &&Machine| {
        let is_spare = members.get(&machine.name).is_some_and(|member| member.profile.spare);
        is_spare && !on.contains(&machine.name) && !pins.contains_key(&machine.name)
    };
    let spares: Vec<&Machine> = good.iter().filter(is_spare).collect();
    // Images may come from another cluster, whose machines nobody misses here.
    let wanted = on.iter().filter(|node| members.get(node).is_some()).count();
    let waits = placement::waiting(&spares, good.len() - spares.len(), wanted);
    let (waiting, machines) = good.into_iter().partition(|machine| waits.contains(&machine.name));
    Offered { machines, waiting }
}

/// What a job's user wants.
pub(in crate::cluster) fn wishes(ledger: &Ledger) -> Wishes {
    let settings = ledger.settings();
    Wishes { whole_nodes: settings.placement == Placement::Node, pins: settings.place.clone() }
}

/// A checkpoint's images, as a placement wants them.
pub(in crate::cluster) fn inputs(
    works: &Works,
    images: &BTreeMap<InstanceId, ImageRecord>,
) -> Vec<Image> {
    let mut work = works.of(images.iter().map(|(instance, image)| (*instance, image)));
    images
        .iter()
        .map(|(instance, image)| {
            let work = work.remove(instance).unwrap_or_default();
            input(*instance, image, image.facts.units.clone(), work)
        })
        .collect()
}

fn input(
    instance: InstanceId,
    image: &ImageRecord,
    units: Vec<Unit>,
    work: BTreeMap<i32, f64>,
) -> Image {
    let processes = image.facts.processes.iter();
    Image {
        instance,
        node: image.node.clone(),
        holders: image.holders.iter().cloned().collect(),
        requirements: image.facts.requirements.clone(),
        units,
        parents: processes.map(|process| (process.pid, process.parent)).collect(),
        work,
    }
}

/// Plans the instances of an epoch that starts from these images, without those that depart. Takers get a
/// share of what could stay.
pub(super) fn parts(
    ledger: &Ledger,
    images: &BTreeMap<InstanceId, ImageRecord>,
    machines: &[Machine],
    departing: &Departing,
    takers: &BTreeSet<NodeName>,
) -> Result<Parts, NoMachine> {
    let images: BTreeMap<InstanceId, &ImageRecord> = images
        .iter()
        .filter(|(instance, image)| !departing.is_whole(**instance, image))
        .map(|(instance, image)| (*instance, image))
        .collect();
    let departs = |instance: &InstanceId, pid: i32| {
        departing.pids.get(instance).is_some_and(|pids| pids.contains(&pid))
    };
    let stay = |instance: &InstanceId, image: &ImageRecord| -> Vec<Unit> {
        let units = image.facts.units.iter();
        units.filter(|unit| !unit.pids.iter().all(|pid| departs(instance, *pid))).cloned().collect()
    };
    let mut work = ledger.works.of(images.iter().map(|(instance, image)| (*instance, *image)));
    let inputs: Vec<Image> = images
        .iter()
        .map(|(instance, image)| {
            let work = work.remove(instance).unwrap_or_default();
            input(*instance, image, stay(instance, image), work)
        })
        .collect();
    let plan = placement::place(&inputs, machines, &wishes(ledger), takers)?;
    let mut parts = Parts::default();
    let mut number = ledger.next_instance().0;
    for (instance, image) in &images {
        let homes = plan.homes.get(instance).map_or(&[][..], Vec::as_slice);
        let units = stay(instance, image);
        let divided = Divided::new(&units, homes);
        parts.moves.extend(divided.moves(image));
        let assignment = divided.assignment(image, |pid| departs(instance, pid));
        for (part, home) in (0..).zip(&divided.homes) {
            let record = InstanceRecord {
                node: (*home).clone(),
                logical_node: image.logical_node.clone(),
                root: image.facts.root.is_some_and(|pid| assignment.get(&pid) == Some(&part)),
                origin: Origin::Image { instance: *instance, assignment: assignment.clone(), part },
                addresses: Vec::new(),
            };
            parts.load.insert(InstanceId(number), divided.load.get(home).copied().unwrap_or(0));
            parts.instances.insert(InstanceId(number), record);
            number = number.saturating_add(1);
        }
    }
    for (node, instance, reason) in plan.unfit {
        let line =
            format!("{node} is left out for the processes of instance {}: {reason}", instance.0);
        parts.left_out.push(line);
    }
    Ok(parts)
}

/// One image's units on their machines.
struct Divided<'a> {
    by_pid: BTreeMap<i32, &'a NodeName>,
    /// Processes that count as load, by machine.
    load: BTreeMap<&'a NodeName, u32>,
    /// The machine of each part. The parts are numbered by the lowest process that each has.
    homes: Vec<&'a NodeName>,
}

impl<'a> Divided<'a> {
    fn new(units: &[Unit], homes: &'a [(NodeName, Why)]) -> Self {
        let (mut by_pid, mut load) = (BTreeMap::new(), BTreeMap::new());
        for (unit, (home, _)) in units.iter().zip(homes) {
            *load.entry(home).or_default() += unit.load;
            by_pid.extend(unit.pids.iter().map(|pid| (*pid, home)));
        }
        let mut homes: Vec<&NodeName> = Vec::new();
        for home in by_pid.values() {
            if !homes.contains(home) {
                homes.push(home);
            }
        }
        Self { by_pid, load, homes }
    }

    /// The part of each process of the image.
    fn assignment(&self, image: &ImageRecord, departs: impl Fn(i32) -> bool) -> BTreeMap<i32, u32> {
        let part = |pid: i32| {
            if departs(pid) {
                return DEPARTED;
            }
            // One that no unit names stays with the first part.
            let home = self.by_pid.get(&pid);
            let part = self.homes.iter().position(|other| Some(other) == home).unwrap_or(0);
            u32::try_from(part).unwrap_or(DEPARTED)
        };
        image.facts.processes.iter().map(|process| (process.pid, part(process.pid))).collect()
    }

    fn moves(&self, image: &ImageRecord) -> impl Iterator<Item = Move> {
        image.facts.processes.iter().filter_map(|process| {
            let home = *self.by_pid.get(&process.pid)?;
            (*home != image.node).then(|| Move {
                process: process.name.clone(),
                pid: process.pid,
                from: image.node.clone(),
                to: home.clone(),
            })
        })
    }
}

/// "nqueens (17) and orted (5) moved to node1, nqueens (18) to node2"
pub(super) fn describe(moves: &[Move]) -> String {
    let mut by_target: BTreeMap<&NodeName, Vec<String>> = BTreeMap::new();
    for one in moves {
        let name = format!("{} ({})", one.process, one.pid);
        by_target.entry(&one.to).or_default().push(name);
    }
    let texts: Vec<String> = by_target
        .into_iter()
        .map(|(target, names)| {
            let names = match names.split_last() {
                Some((last, [])) => last.clone(),
                Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
                None => String::new(),
            };
            format!("{names} to {target}")
        })
        .collect();
    if texts.is_empty() { String::new() } else { format!("moved {}", texts.join(", ")) }
}
