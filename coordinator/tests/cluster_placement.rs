//! What a plan promises, over random clusters and images.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use coordinator::cluster::placement::{
    Advice, Image, Machine, Outlook, Paces, Plan, Why, Wishes, advise, crowd, misfit, place,
};
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
        any_vdso: false,
        features: Vec::new(),
    }
}

/// Machines node0... (slots, speed in tenths, other load, kind).
fn machines(of: &[(u32, u32, u32, u8)]) -> Vec<Machine> {
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
        work: BTreeMap::new(),
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

/// When a job is done whose processes have the same to do: the last of its machines counts, and no process runs
/// on more than a core.
fn finish(
    machines: &[Machine],
    images: &[Image],
    homes: impl Fn(&Image, usize) -> NodeName,
) -> f64 {
    let mut own = vec![0_u32; machines.len()];
    for image in images {
        for (index, unit) in image.units.iter().enumerate() {
            let home = homes(image, index);
            own[machines.iter().position(|machine| machine.name == home).unwrap()] += unit.load;
        }
    }
    let time = |(machine, own): (&Machine, &u32)| {
        let load = f64::from(own + machine.busy);
        if *own == 0 { 0.0 } else { (load / rate(machine)).max(1.0 / machine.speed) }
    };
    machines.iter().zip(&own).map(time).fold(0.0, f64::max)
}

const LONG: Outlook = Outlook { ran: 1e6, settled: f64::INFINITY, cost: 1.0 };

fn advice(
    images: &[Image],
    machines: &[Machine],
    newcomer: usize,
    outlook: Outlook,
) -> Option<Advice> {
    advise(images, machines, &Wishes::default(), &BTreeSet::from([name(newcomer)]), outlook)
        .unwrap()
}

/// So many machines of two cores, and each one's ranks.
fn even(ranks: &[usize]) -> (Vec<Machine>, Vec<Image>) {
    let image_of = |(node, count): (usize, &usize)| {
        image(u32::try_from(node + 1).unwrap(), node, &[node], &vec![(1, false); *count])
    };
    let machines = machines(&vec![(2, 10, 0, 0); ranks.len()]);
    (machines, ranks.iter().enumerate().map(image_of).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn newcomers_take_what_makes_the_end_come_sooner(
        case in case(2), newcomer in 0_usize..6, whole in any::<bool>(),
    ) {
        let (machines, mut images) = (machines(&case.0), images(&case.1));
        // All are on machines that are there and can run them.
        let fits = |machine: &&Machine| misfit(machine, &kind(0)).is_none();
        let able: Vec<NodeName> = machines.iter().filter(fits).map(|m| m.name.clone()).collect();
        prop_assume!(!able.is_empty());
        for (index, image) in images.iter_mut().enumerate() {
            image.node = able[index % able.len()].clone();
        }
        let wishes = Wishes { whole_nodes: whole, ..Wishes::default() };
        let newcomers = BTreeSet::from([name(newcomer)]);
        let found = advise(&images, &machines, &wishes, &newcomers, LONG).unwrap();
        let Advice { plan, takers, faster, gain, pays } = found.unwrap();
        let before = finish(&machines, &images, |image, _| image.node.clone());
        let after = finish(&machines, &images, |image, unit| {
            plan.homes[&image.instance][unit].0.clone()
        });
        prop_assert!(after <= before + 1e-9);
        if before > 0.0 {
            prop_assert!((faster - before / after).abs() < 1e-9);
            prop_assert!((gain - LONG.ran * (1.0 - after / before)).abs() < 1e-3);
        }
        prop_assert!(!pays || after <= before * 0.9 + 1e-9);
        for image in &images {
            let homes = &plan.homes[&image.instance];
            for (home, why) in homes {
                // Nobody moves but to the newcomer, if that can run it.
                prop_assert_eq!(*why == Why::Joined, *home != image.node);
                prop_assert!(*home == image.node || *home == name(newcomer) && able.contains(home));
            }
            prop_assert!(!whole || homes.iter().all(|home| home.0 == homes[0].0));
        }
        prop_assert_eq!(takers.is_empty(), images.iter().all(|image| {
            plan.homes[&image.instance].iter().all(|(home, _)| *home == image.node)
        }));
        // A plan for the same newcomers is the one that was advised.
        prop_assert_eq!(place(&images, &machines, &wishes, &newcomers).unwrap(), plan);
    }

    #[test]
    fn a_move_is_not_undone(case in case(1), newcomer in 0_usize..6) {
        let (machines, mut images) = (machines(&case.0), images(&case.1));
        for (index, image) in images.iter_mut().enumerate() {
            image.node = machines[index % machines.len()].name.clone();
        }
        let moved = advice(&images, &machines, newcomer, LONG).unwrap();
        // Each process by itself, where it is now.
        let mut after = Vec::new();
        for one in &images {
            for (unit, (home, _)) in one.units.iter().zip(&moved.plan.homes[&one.instance]) {
                let number = AgentId(u32::try_from(after.len() + 1).unwrap());
                let units = vec![unit.clone()];
                let node = home.clone();
                after.push(Image { instance: number, node, units, ..one.clone() });
            }
        }
        let again = advice(&after, &machines, newcomer, LONG).unwrap();
        prop_assert!(again.takers.is_empty() && !again.pays, "{again:?}");
    }
}

#[test]
fn a_third_machine_takes_a_third() {
    let (machines, images) = even(&[3, 3, 0]);
    let found = advice(&images, &machines, 2, LONG).unwrap();
    assert_eq!(loads(&machines, &images, &found.plan), [2, 2, 2]);
    assert_eq!((found.faster, found.pays), (1.5, true));
    assert_eq!(found.takers, BTreeSet::from([name(2)]));
    // Daemons stay with the children that stay.
    for image in &images {
        assert_eq!(found.plan.homes[&image.instance][0], (image.node.clone(), Why::Stays));
    }
}

#[test]
fn a_move_must_be_worth_it() {
    let (machines, images) = even(&[3, 3, 0]);
    let pays = |outlook| advice(&images, &machines, 2, outlook).unwrap().pays;
    // A third of the time that is left: 2 s of 6.
    assert!(pays(Outlook { ran: 6.1, settled: f64::INFINITY, cost: 2.0 }));
    assert!(!pays(Outlook { ran: 5.9, settled: f64::INFINITY, cost: 2.0 }));
    // It has been moved just now.
    assert!(!pays(Outlook { ran: 1000.0, settled: 19.0, cost: 2.0 }));
    assert!(pays(Outlook { ran: 1000.0, settled: 20.0, cost: 2.0 }));
    // Nobody has more to do than cores.
    let (machines, images) = even(&[2, 2, 0]);
    let idle = advice(&images, &machines, 2, LONG).unwrap();
    assert!(!idle.pays && idle.takers.is_empty());
}

#[test]
fn a_slow_newcomer_gets_little_and_pinned_jobs_stay() {
    let (mut machines, images) = even(&[4, 4, 0]);
    (machines[2].speed, machines[2].speed_all) = (0.3, 0.3);
    let slow = advice(&images, &machines, 2, LONG).unwrap();
    assert!(loads(&machines, &images, &slow.plan)[2] <= 1 && !slow.pays);
    (machines[2].speed, machines[2].speed_all) = (4.0, 4.0);
    let fast = advice(&images, &machines, 2, LONG).unwrap();
    assert!(loads(&machines, &images, &fast.plan)[2] >= 4 && fast.pays);
    let pins = BTreeMap::from([(name(0), 4)]);
    let wishes = Wishes { pins, ..Wishes::default() };
    let newcomers = BTreeSet::from([name(2)]);
    assert_eq!(advise(&images, &machines, &wishes, &newcomers, LONG), Ok(None));
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

/// Machines of parts of a core.
fn parts(cores: &[f64]) -> Vec<Machine> {
    let mut machines = machines(&vec![(4, 10, 0, 0); cores.len()]);
    for (machine, cores) in machines.iter_mut().zip(cores) {
        (machine.cpus, machine.cores) = (1, *cores);
    }
    machines
}

/// Four ranks on each of so many nodes.
fn fours(nodes: usize) -> Vec<Image> {
    let one = |node| image(u32::try_from(node).unwrap() + 1, node, &[node], &[(1, false); 4]);
    (0..nodes).map(one).collect()
}

/// For each placement of the departed ones on two survivors, when the job is done; and by the plan.
fn splits(cores: &[f64; 3], leaves: usize) -> (Vec<f64>, f64) {
    let mut machines = parts(cores);
    let time = |load: [u32; 2], machines: &[Machine]| {
        let of = |(load, machine): (u32, &Machine)| f64::from(load) / machine.cores;
        load.into_iter().zip(machines).map(of).fold(0.0, f64::max)
    };
    machines.remove(leaves);
    let all = (0..=4).map(|moved| time([4 + moved, 8 - moved], &machines)).collect();
    let plan = place(&fours(3), &machines, &Wishes::default(), &BTreeSet::new()).unwrap();
    let loads = loads(&machines, &fours(3), &plan);
    (all, time([loads[0], loads[1]], &machines))
}

#[test]
fn the_plan_is_the_best_of_all_splits_on_parts_of_cores() {
    for cores in
        [[0.6, 0.6, 0.6], [0.4, 0.8, 0.4], [0.7, 0.7, 0.35], [0.3, 0.9, 0.3], [0.5, 0.6, 0.7]]
    {
        for leaves in 0..3 {
            let (all, planned) = splits(&cores, leaves);
            let best = all.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(planned <= best * 1.001, "{cores:?} without {leaves}: {planned} {all:?}");
        }
    }
}

#[test]
fn measured_speeds_that_differ_by_chance_split_evenly() {
    let mut machines = parts(&[0.6, 0.6]);
    (machines[1].speed, machines[1].speed_all) = (0.96, 0.95);
    let plan = place(&fours(3), &machines, &Wishes::default(), &BTreeSet::new()).unwrap();
    assert_eq!(loads(&machines, &fours(3), &plan), [6, 6]);
}

/// Ranks of such weights, in units of their own, as far as `lost` on node2, which is gone, the others on node0 and node1 in turn.
fn weighted(weights: &[f64], lost: usize) -> Vec<Image> {
    let mut images = Vec::new();
    for (node, chosen) in [(0, 0), (1, 1), (2, 2)] {
        let of = |rank: &usize| if *rank < lost { 2 } else { rank % 2 };
        let own: Vec<f64> = (0..weights.len())
            .filter(|rank| of(rank) == chosen)
            .map(|rank| weights[rank])
            .collect();
        let mut image = image(node + 1, chosen, &[chosen], &vec![(1, false); own.len()]);
        image.work = (3..).zip(own).collect();
        images.push(image);
    }
    images
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_plan_is_the_best_of_all_ways_to_place_ranks_of_unlike_weights(
        weights in prop::collection::vec(1_u32..9, 1..9), lost in 1_usize..7,
        cores in prop::collection::vec(0.2_f64..1.8, 2..4),
    ) {
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let mut machines = parts(&[0.6; 4]);
        machines.remove(2);
        machines.truncate(cores.len());
        for (machine, cores) in machines.iter_mut().zip(&cores) {
            (machine.cpus, machine.cores) = (2, *cores);
        }
        let lost = lost.min(weights.len());
        let images = weighted(&weights, lost);
        let end = |load: &[(f64, f64)]| {
            let time = |((all, one), cores): (&(f64, f64), &f64)| {
                (all / cores).max(one / cores.min(1.0))
            };
            load.iter().zip(&cores).map(time).fold(0.0, f64::max)
        };
        let add = |load: &mut Vec<(f64, f64)>, home: usize, weight: f64| {
            load[home] = (load[home].0 + weight, load[home].1.max(weight));
        };
        let mut fixed = vec![(0.0, 0.0); cores.len()];
        for (rank, weight) in weights.iter().enumerate().skip(lost) {
            add(&mut fixed, rank % 2, *weight);
        }
        let mut best = f64::INFINITY;
        for number in 0..cores.len().pow(u32::try_from(lost).unwrap()) {
            let (mut load, mut number) = (fixed.clone(), number);
            for weight in &weights[..lost] {
                add(&mut load, number % cores.len(), *weight);
                number /= cores.len();
            }
            best = best.min(end(&load));
        }
        let plan = place(&images, &machines, &Wishes::default(), &BTreeSet::new()).unwrap();
        let mut load = fixed.clone();
        for (weight, (home, _)) in weights[..lost].iter().zip(&plan.homes[&AgentId(3)][1..]) {
            add(&mut load, machines.iter().position(|machine| machine.name == *home).unwrap(), *weight);
        }
        prop_assert!(end(&load) <= best * 1.0102, "{} {}", end(&load), best);
    }
}

#[test]
fn two_with_much_to_do_are_not_put_together() {
    // Ranks 3 to 6 of weights 1, 1, 2, 4 (average 2), all on the node that is lost.
    let mut image = image(1, 2, &[0], &[(1, false); 4]);
    image.work = BTreeMap::from([(3, 0.5), (4, 0.5), (5, 1.0), (6, 2.0)]);
    let machines = parts(&[0.6, 0.6]);
    let plan = place(&[image.clone()], &machines, &Wishes::default(), &BTreeSet::new()).unwrap();
    let homes: Vec<&NodeName> = plan.homes[&AgentId(1)].iter().map(|(home, _)| home).collect();
    // The fourth alone, against the three others.
    assert_ne!(homes[4], homes[3]);
    assert_eq!((homes[1], homes[2]), (homes[3], homes[3]));
    // With nothing known, two and two.
    image.work.clear();
    let plan = place(&[image.clone()], &machines, &Wishes::default(), &BTreeSet::new()).unwrap();
    assert_eq!(loads(&machines, &[image], &plan), [2, 2]);
}

/// A job that runs for so many checkpoints on machines whose speeds are measured with so much noise, and of which
/// the second one has `slower` of its own from the 50th checkpoint on: how often it is moved, and its ranks
/// at the end.
fn history(nodes: usize, noise: &[f64], slower: f64) -> (usize, Vec<u32>) {
    let (mut images, mut paces, mut moves) = (fours(nodes), Paces::default(), 0);
    let mut settled = f64::INFINITY;
    for (checkpoint, around) in noise.chunks_exact(nodes).enumerate() {
        let mut machines = parts(&vec![0.6; nodes]);
        for (machine, noise) in machines.iter_mut().zip(around) {
            machine.cores *= noise;
        }
        if checkpoint >= 50 {
            machines[1].cores *= slower;
        }
        if checkpoint == 0 {
            paces.note(&machines);
        }
        settled += 5.0;
        if paces.changed(&machines).is_empty() {
            continue;
        }
        let all: BTreeSet<NodeName> = machines.iter().map(|m| m.name.clone()).collect();
        let outlook = Outlook { ran: 300.0, settled, cost: 1.0 };
        let advice =
            advise(&images, &machines, &Wishes::default(), &all, outlook).unwrap().unwrap();
        if advice.pays {
            (moves, settled) = (moves + 1, 0.0);
            paces.note(&machines);
            let mut after = Vec::new();
            for one in &images {
                for (unit, (home, _)) in one.units.iter().zip(&advice.plan.homes[&one.instance]) {
                    let instance = AgentId(u32::try_from(after.len() + 1).unwrap());
                    let units = vec![unit.clone()];
                    after.push(Image { instance, node: home.clone(), units, ..one.clone() });
                }
            }
            images = after;
        }
    }
    let mut ranks = vec![0; nodes];
    for image in &images {
        let node = (0..nodes).find(|node| name(*node) == image.node).unwrap();
        ranks[node] += image.units.iter().map(|unit| unit.load).sum::<u32>();
    }
    (moves, ranks)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn noise_moves_nothing_and_a_third_less_moves_one(
        noise in prop::collection::vec(0.93_f64..1.07, 600), slower in 0.45_f64..0.66,
    ) {
        prop_assert_eq!(history(3, &noise, 1.0), (0, vec![4, 4, 4]));
        let (moves, ranks) = history(3, &noise, slower);
        prop_assert!((1..=2).contains(&moves), "{} moves", moves);
        prop_assert!(ranks[1] == 2 || ranks[1] == 3, "{:?}", ranks);
        prop_assert_eq!(ranks.iter().sum::<u32>(), 12);
    }
}

#[test]
fn a_machine_that_was_not_there_has_not_changed() {
    let mut paces = Paces::default();
    paces.note(&parts(&[0.6, 0.6]));
    assert!(paces.changed(&parts(&[0.6, 0.5, 0.1])).is_empty());
    let changed = paces.changed(&parts(&[0.6, 0.3, 0.2]));
    assert_eq!(changed.keys().collect::<Vec<_>>(), [&name(1), &name(2)]);
    assert!((changed[&name(1)] - 0.5).abs() < 1e-9);
}

#[test]
fn an_image_in_which_nobody_lives_fits_every_kernel() {
    let machine = &machines(&[(1, 10, 0, 7)])[0];
    assert!(misfit(machine, &kind(8)).is_some());
    assert_eq!(misfit(machine, &Requirements { vdso: String::new(), ..kind(8) }), None);
}

#[test]
fn what_runs_beside_a_job_takes_longer_where_its_processes_want_the_same_cores() {
    let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}");
    // Four ranks and the writing on a part of a core, or on two of them.
    near(crowd(&fours(3), &parts(&[0.45, 0.225, 0.45])), 5.0);
    let (machines, images) = even(&[4, 1, 0]);
    near(crowd(&images, &machines), 3.0);
    // A core for everybody.
    let (machines, images) = even(&[1, 1, 0]);
    near(crowd(&images, &machines), 1.0);
    near(crowd(&[], &[]), 1.0);
}
