//! What nodes that have joined take over, and whether that pays.

use crate::rig::{case, even, images, kind, loads, machines, name, rate};
use coordinator::cluster::placement::{
    Advice, Image, Machine, Outlook, Why, Wishes, advise, misfit, place,
};
use proptest::prelude::*;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use std::collections::{BTreeMap, BTreeSet};

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
                let number = InstanceId(u32::try_from(after.len() + 1).unwrap());
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
