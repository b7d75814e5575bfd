//! Clusters and images to be placed, random ones and even ones.

use coordinator::cluster::placement::{Image, Machine, Plan};
use proptest::prelude::*;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::image::{Requirements, Unit};
use std::collections::BTreeMap;

pub fn name(index: usize) -> NodeName {
    format!("node{index}").parse().unwrap()
}

pub fn kind(vdso: u8) -> Requirements {
    Requirements {
        architecture: "x86_64".to_owned(),
        page_size: 4096,
        vdso: vdso.to_string(),
        any_vdso: false,
        features: Vec::new(),
        memory_top: 0,
    }
}

/// Machines node0... (slots, speed in tenths, other load, kind).
pub fn machines(of: &[(u32, u32, u32, u8)]) -> Vec<Machine> {
    let machine = |(index, (slots, speed, busy, vdso)): (usize, &(u32, u32, u32, u8))| Machine {
        name: name(index),
        slots: *slots,
        cpus: *slots,
        cores: f64::from(*slots),
        speed: f64::from(*speed) / 10.0,
        speed_all: f64::from(*speed) / 10.0,
        busy: *busy,
        offer: kind(*vdso),
    };
    of.iter().enumerate().map(machine).collect()
}

/// An image of a daemon (2) and its ranks (3...), some of them in one unit.
pub fn image(number: u32, node: usize, holders: &[usize], ranks: &[(u64, bool)]) -> Image {
    let mut units = vec![Unit { pids: vec![2], bytes: 10, load: 0, because: String::new() }];
    let mut parents = BTreeMap::from([(2, 1)]);
    let mut pid = 3;
    for (bytes, pair) in ranks {
        let pids: Vec<i32> = (pid..pid + 1 + i32::from(*pair)).collect();
        pid += i32::try_from(pids.len()).unwrap();
        parents.extend(pids.iter().map(|pid| (*pid, 2)));
        let load = u32::try_from(pids.len()).unwrap();
        units.push(Unit { pids, bytes: *bytes, load, because: String::new() });
    }
    Image {
        instance: InstanceId(number),
        node: name(node),
        holders: holders.iter().map(|holder| name(*holder)).collect(),
        requirements: kind(0),
        units,
        parents,
        work: BTreeMap::new(),
    }
}

pub fn rate(machine: &Machine) -> f64 {
    machine.speed * f64::from(machine.slots)
}

pub fn loads(machines: &[Machine], images: &[Image], plan: &Plan) -> Vec<u32> {
    let mut loads: Vec<u32> = machines.iter().map(|machine| machine.busy).collect();
    for image in images {
        for (unit, (home, _)) in image.units.iter().zip(&plan.homes[&image.instance]) {
            let at = machines.iter().position(|machine| machine.name == *home).unwrap();
            loads[at] += unit.load;
        }
    }
    loads
}

pub fn moved(images: &[Image], plan: &Plan) -> u64 {
    images
        .iter()
        .flat_map(|image| {
            image.units.iter().zip(&plan.homes[&image.instance]).map(move |p| (image, p))
        })
        .filter(|(image, (unit, (home, _)))| unit.load > 0 && !image.holders.contains(home))
        .map(|(_, (unit, _))| unit.bytes)
        .sum()
}

/// Node, holders, ranks (bytes, pair).
pub type Layout = (usize, Vec<usize>, Vec<(u64, bool)>);
/// Machines (slots, speed, busy, kind), and images.
pub type Case = (Vec<(u32, u32, u32, u8)>, Vec<Layout>);

pub fn case(kinds: u8) -> impl Strategy<Value = Case> {
    let machine = (1_u32..5, 5_u32..30, 0_u32..3, 0..kinds);
    let ranks = prop::collection::vec((0_u64..5, any::<bool>()), 0..6);
    let image = (0_usize..8, prop::collection::vec(0_usize..8, 0..3), ranks);
    (prop::collection::vec(machine, 1..6), prop::collection::vec(image, 1..5))
}

pub fn images(of: &[Layout]) -> Vec<Image> {
    of.iter()
        .zip(1..)
        .map(|((node, holders, ranks), number)| image(number, *node, holders, ranks))
        .collect()
}

/// Machines of parts of a core.
pub fn parts(cores: &[f64]) -> Vec<Machine> {
    let mut machines = machines(&vec![(4, 10, 0, 0); cores.len()]);
    for (machine, cores) in machines.iter_mut().zip(cores) {
        (machine.cpus, machine.cores) = (1, *cores);
    }
    machines
}

/// Four ranks on each of so many nodes.
pub fn fours(nodes: usize) -> Vec<Image> {
    let one = |node| image(u32::try_from(node).unwrap() + 1, node, &[node], &[(1, false); 4]);
    (0..nodes).map(one).collect()
}

/// So many machines of two cores, and each one's ranks.
pub fn even(ranks: &[usize]) -> (Vec<Machine>, Vec<Image>) {
    let image_of = |(node, count): (usize, &usize)| {
        image(u32::try_from(node + 1).unwrap(), node, &[node], &vec![(1, false); *count])
    };
    let machines = machines(&vec![(2, 10, 0, 0); ranks.len()]);
    (machines, ranks.iter().enumerate().map(image_of).collect())
}
