//! What a plan promises, over random clusters and images.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use coordinator::cluster::placement::{Image, Machine, Plan, Why, Wishes, misfit, place};
use proptest::prelude::*;
use protocol::agent::AgentId;
use protocol::cluster::NodeName;
use protocol::cluster::image::{Requirements, Unit};
use std::collections::{BTreeMap, BTreeSet};

fn name(index: usize) -> NodeName {
    format!("node{index}").parse().unwrap()
}

fn kind(vdso: u8) -> Requirements {
    Requirements {
        architecture: "x86_64".to_owned(),
        page_size: 4096,
        vdso: vdso.to_string(),
        features: Vec::new(),
    }
}

/// Machines node0... (slots, speed in tenths, other load, kind).
fn machines(of: &[(u32, u32, u32, u8)]) -> Vec<Machine> {
    let machine = |(index, (slots, speed, busy, vdso)): (usize, &(u32, u32, u32, u8))| Machine {
        name: name(index),
        slots: *slots,
        cores: *slots,
        speed: f64::from(*speed) / 10.0,
        busy: *busy,
        offer: kind(*vdso),
    };
    of.iter().enumerate().map(machine).collect()
}

/// An image of a daemon (2) and its ranks (3...), some of them in one unit.
fn image(number: u32, node: usize, holders: &[usize], ranks: &[(u64, bool)]) -> Image {
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
        instance: AgentId(number),
        node: name(node),
        holders: holders.iter().map(|holder| name(*holder)).collect(),
        requirements: kind(0),
        units,
        parents,
    }
}

fn rate(machine: &Machine) -> f64 {
    machine.speed * f64::from(machine.slots)
}

fn loads(machines: &[Machine], images: &[Image], plan: &Plan) -> Vec<u32> {
    let mut loads: Vec<u32> = machines.iter().map(|machine| machine.busy).collect();
    for image in images {
        for (unit, (home, _)) in image.units.iter().zip(&plan.homes[&image.instance]) {
            let at = machines.iter().position(|machine| machine.name == *home).unwrap();
            loads[at] += unit.load;
        }
    }
    loads
}

fn moved(images: &[Image], plan: &Plan) -> u64 {
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
type Layout = (usize, Vec<usize>, Vec<(u64, bool)>);
/// Machines (slots, speed, busy, kind), and images.
type Case = (Vec<(u32, u32, u32, u8)>, Vec<Layout>);

fn case(kinds: u8) -> impl Strategy<Value = Case> {
    let machine = (1_u32..5, 5_u32..30, 0_u32..3, 0..kinds);
    let ranks = prop::collection::vec((0_u64..5, any::<bool>()), 0..6);
    let image = (0_usize..8, prop::collection::vec(0_usize..8, 0..3), ranks);
    (prop::collection::vec(machine, 1..6), prop::collection::vec(image, 1..5))
}

fn images(of: &[Layout]) -> Vec<Image> {
    of.iter()
        .zip(1..)
        .map(|((node, holders, ranks), number)| image(number, *node, holders, ranks))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn everybody_is_placed_once_where_it_can_run(case in case(2), whole in any::<bool>()) {
        let (machines, images) = (machines(&case.0), images(&case.1));
        let wishes = Wishes { whole_nodes: whole, ..Wishes::default() };
        let fits = |machine: &&Machine| misfit(machine, &kind(0)).is_none();
        let Ok(plan) = place(&images, &machines, &wishes, &BTreeSet::new()) else {
            prop_assert!(machines.iter().find(fits).is_none());
            return Ok(());
        };
        let unfit: BTreeSet<&NodeName> = plan.unfit.iter().map(|(name, _, _)| name).collect();
        for image in &images {
            let homes = &plan.homes[&image.instance];
            prop_assert_eq!(homes.len(), image.units.len());
            for (home, why) in homes {
                let machine = machines.iter().find(|machine| machine.name == *home).unwrap();
                prop_assert!(fits(&machine) && !unfit.contains(home));
                prop_assert_eq!(*why == Why::Stays, *home == image.node);
            }
            // What was on a machine that is still there, and can run it, stays.
            let there = machines.iter().find(|machine| machine.name == image.node);
            if there.filter(fits).is_some() {
                prop_assert!(homes.iter().all(|(home, _)| *home == image.node));
            }
            if whole {
                prop_assert!(homes.iter().all(|home| home.0 == homes[0].0));
            }
        }
    }

    #[test]
    fn nobody_gets_more_than_a_unit_above_its_share(case in case(1)) {
        let (machines, images) = (machines(&case.0), images(&case.1));
        let plan = place(&images, &machines, &Wishes::default(), &BTreeSet::new()).unwrap();
        let loads = loads(&machines, &images, &plan);
        let all = f64::from(loads.iter().sum::<u32>());
        let rates: f64 = machines.iter().map(rate).sum();
        for (machine, load) in machines.iter().zip(&loads) {
            let newcomers = images.iter().flat_map(|image| {
                image.units.iter().zip(&plan.homes[&image.instance])
            });
            let largest = newcomers
                .filter(|(_, (home, why))| *home == machine.name && *why == Why::Balanced)
                .map(|(unit, _)| unit.load)
                .max();
            if let Some(largest) = largest.filter(|largest| *largest > 0) {
                let share = all * rate(machine) / rates;
                prop_assert!(
                    f64::from(*load) <= share + f64::from(largest) + 1e-6,
                    "{} has {load}, its share is {share}", machine.name
                );
            }
        }
    }

    #[test]
    fn no_exchange_of_equals_moves_fewer_bytes(case in case(1)) {
        let (machines, images) = (machines(&case.0), images(&case.1));
        let plan = place(&images, &machines, &Wishes::default(), &BTreeSet::new()).unwrap();
        // Units of the same load that came to be somewhere: every other way to deal the same places out.
        let mut newcomers = Vec::new();
        for image in &images {
            for (unit, (home, why)) in image.units.iter().zip(&plan.homes[&image.instance]) {
                if *why == Why::Balanced && unit.load == 1 {
                    newcomers.push((image, unit.bytes, home.clone()));
                }
            }
        }
        newcomers.truncate(6);
        let cost = |(image, bytes, _): &(&Image, u64, NodeName), home: &NodeName| {
            if image.holders.contains(home) { 0 } else { *bytes }
        };
        let homes: Vec<NodeName> = newcomers.iter().map(|newcomer| newcomer.2.clone()).collect();
        let now: u64 = newcomers.iter().zip(&homes).map(|(one, home)| cost(one, home)).sum();
        let mut best = now;
        permute(&mut homes.clone(), 0, &mut |homes| {
            best = best.min(newcomers.iter().zip(homes).map(|(one, home)| cost(one, home)).sum());
        });
        prop_assert_eq!(now, best);
    }

    #[test]
    fn pinned_numbers_are_kept(pins in prop::collection::vec(0_u32..4, 1..5), extra in 0_usize..4) {
        let total: usize = pins.iter().map(|pin| *pin as usize).sum::<usize>() + extra;
        let machines = machines(&vec![(2, 10, 0, 0); pins.len() + 1]);
        let ranks = vec![(1, false); total];
        let images = [image(1, 0, &[0], &ranks)];
        let pins: BTreeMap<NodeName, u32> =
            pins.iter().enumerate().map(|(index, pin)| (name(index), *pin)).collect();
        let wishes = Wishes { pins: pins.clone(), ..Wishes::default() };
        let plan = place(&images, &machines, &wishes, &BTreeSet::new()).unwrap();
        let loads = loads(&machines, &images, &plan);
        for (machine, load) in machines.iter().zip(&loads) {
            let wanted = pins.get(&machine.name).copied();
            prop_assert_eq!(*load, wanted.unwrap_or(u32::try_from(extra).unwrap()));
        }
    }
}

fn permute(items: &mut Vec<NodeName>, from: usize, look: &mut impl FnMut(&[NodeName])) {
    if from == items.len() {
        look(items);
        return;
    }
    for other in from..items.len() {
        items.swap(from, other);
        permute(items, from + 1, look);
        items.swap(from, other);
    }
}

#[test]
fn a_lost_nodes_ranks_go_to_different_survivors() {
    let machines = machines(&[(2, 10, 0, 0), (2, 10, 0, 0)]);
    let images = [
        image(1, 0, &[0, 1], &[(64, false), (64, false)]),
        image(2, 1, &[1, 2], &[(64, false), (64, false)]),
        image(3, 2, &[2, 0], &[(64, false), (64, false)]),
    ];
    let plan = place(&images, &machines, &Wishes::default(), &BTreeSet::new()).unwrap();
    assert_eq!(loads(&machines, &images, &plan), [3, 3]);
    let lost: BTreeSet<&NodeName> =
        plan.homes[&AgentId(3)][1..].iter().map(|(home, _)| home).collect();
    assert_eq!(lost.len(), 2);
    // Its daemon is with one of them, where the image is.
    assert_eq!(plan.homes[&AgentId(3)][0], (name(0), Why::WithChildren));
    assert_eq!(moved(&images, &plan), 64);
}
