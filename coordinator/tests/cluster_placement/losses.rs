//! Where the processes of nodes that are gone go.

use crate::rig::{case, image, images, kind, loads, machines, moved, name, rate};
use coordinator::cluster::placement::{Image, Machine, Why, Wishes, misfit, place};
use proptest::prelude::*;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::image::Requirements;
use std::collections::{BTreeMap, BTreeSet};

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
        plan.homes[&InstanceId(3)][1..].iter().map(|(home, _)| home).collect();
    assert_eq!(lost.len(), 2);
    // Its daemon is with one of them, where the image is.
    assert_eq!(plan.homes[&InstanceId(3)][0], (name(0), Why::WithChildren));
    assert_eq!(moved(&images, &plan), 64);
}

#[test]
fn an_image_in_which_nobody_lives_fits_every_kernel() {
    let machine = &machines(&[(1, 10, 0, 7)])[0];
    assert!(misfit(machine, &kind(8)).is_some());
    assert_eq!(misfit(machine, &Requirements { vdso: String::new(), ..kind(8) }), None);
}

#[test]
fn memory_has_to_fit_into_the_address_space() {
    let mut machine = machines(&[(1, 10, 0, 7)]).remove(0);
    let wanted = Requirements { memory_top: 1 << 47, ..kind(7) };
    assert_eq!(misfit(&machine, &wanted), None, "not told by an older agent");
    machine.offer.memory_top = 1 << 47;
    assert_eq!(misfit(&machine, &wanted), None);
    machine.offer.memory_top = 1 << 39;
    let reason = misfit(&machine, &wanted).unwrap();
    assert!(reason.contains("0x8000000000,") && reason.contains("0x800000000000"), "{reason}");
    // Who told nothing of its processes is not kept away.
    assert_eq!(misfit(&machine, &kind(7)), None);
}

#[test]
fn an_image_with_its_vdso_fits_every_kernel() {
    let machine = &machines(&[(1, 10, 0, 7)])[0];
    assert_eq!(misfit(machine, &Requirements { any_vdso: true, ..kind(8) }), None);
}
