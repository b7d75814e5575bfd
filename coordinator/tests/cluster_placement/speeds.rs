//! Machines of which jobs have parts of a core, ranks with unlike much to do, and machines that become slower.

use crate::rig::{even, fours, image, loads, name, parts};
use coordinator::cluster::placement::{
    Image, Machine, Outlook, Paces, Wishes, advise, crowd, place,
};
use proptest::prelude::*;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use std::collections::{BTreeMap, BTreeSet};

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
        for (weight, (home, _)) in weights[..lost].iter().zip(&plan.homes[&InstanceId(3)][1..]) {
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
    let homes: Vec<&NodeName> = plan.homes[&InstanceId(1)].iter().map(|(home, _)| home).collect();
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
                    let instance = InstanceId(u32::try_from(after.len() + 1).unwrap());
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
