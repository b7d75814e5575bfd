//! Rehearsals whose agents are slow, lost, or not those that were asked.

use super::rig::{Rig, name};
use ckpt_node::Event;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::rehearsal::{RehearsalOrder, RehearsedInstance};
use protocol::cluster::settings::JobSettings;
use protocol::control::RehearsalOutcome;

/// What the agents were told to rehearse.
fn orders(rig: &Rig) -> Vec<(usize, RehearsalOrder)> {
    let orders = rig.sent.iter().filter_map(|(node, message)| match message {
        ToAgent::Rehearse(order) => Some((*node, (**order).clone())),
        _ => None,
    });
    orders.collect()
}

/// What comes of an order, of its first instance, on a node.
fn rehearsed(rig: &mut Rig, node: usize, order: &RehearsalOrder) {
    let image = order.images[0].image;
    let instance = RehearsedInstance { image, outcome: restorable(), warnings: Vec::new() };
    rig.happens(node, Event::Rehearsed(order.number, Some(instance)));
    rig.happens(node, Event::Rehearsed(order.number, None));
}

fn restorable() -> RehearsalOutcome {
    RehearsalOutcome::Restorable { processes: 3, took_ms: 20 }
}

/// By the node, and whether that was all.
fn told(rig: &Rig) -> (Vec<(usize, RehearsalOutcome)>, bool) {
    let mut told = Vec::new();
    let mut all = false;
    for answer in &rig.answers {
        match answer {
            Answer::Rehearsed { node: Some(node), instance } => {
                let number = (1..).find(|number| name(*number) == *node).unwrap();
                told.push((number, instance.outcome.clone()));
            }
            Answer::Done { .. } => all = true,
            _ => {}
        }
    }
    (told, all)
}

fn asked(settings: JobSettings) -> (Rig, Vec<(usize, RehearsalOrder)>) {
    let mut rig = Rig::with_job(2, settings);
    rig.checkpoint();
    rig.answers.clear();
    rig.ask(Ask::Rehearse { job: "latest".to_owned(), checkpoint: None });
    let orders = orders(&rig);
    assert_eq!(orders.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [1, 2]);
    (rig, orders)
}

#[test]
fn what_is_rehearsed_on_a_lost_node_is_not_known() {
    let (mut rig, orders) = asked(Rig::on_demand());
    rehearsed(&mut rig, 1, &orders[0].1);
    assert_eq!(told(&rig), (vec![(1, restorable())], false));
    rig.disconnect(2);
    let lost = RehearsalOutcome::Unknown("the connection to node2 was lost".to_owned());
    assert_eq!(told(&rig), (vec![(1, restorable()), (2, lost)], true));
    // What it says when it is back is nobody's any more.
    let before = rig.answers.len();
    rig.connect(2);
    rehearsed(&mut rig, 2, &orders[1].1);
    assert_eq!(rig.answers.len(), before);
}

#[test]
fn nobody_answers_for_another_one_and_silence_has_an_end() {
    let (mut rig, orders) = asked(Rig::on_demand());
    rehearsed(&mut rig, 2, &orders[0].1);
    assert_eq!(told(&rig), (vec![], false));
    rehearsed(&mut rig, 1, &orders[0].1);
    rehearsed(&mut rig, 1, &orders[0].1);
    rig.wait(600_000);
    assert_eq!(told(&rig), (vec![(1, restorable())], false));
    rig.wait(100_000);
    let silent = RehearsalOutcome::Unknown("there was no answer".to_owned());
    assert_eq!(told(&rig), (vec![(1, restorable()), (2, silent)], true));
    assert!(rig.rollbacks().is_empty());
}

#[test]
fn what_is_due_is_rehearsed_after_every_so_many_checkpoints() {
    let mut rig = Rig::with_job(2, JobSettings { rehearse: 2, ..Rig::on_demand() });
    let numbers = |rig: &Rig| {
        orders(rig).iter().map(|(_, order)| order.images[0].image.checkpoint).collect::<Vec<_>>()
    };
    rig.checkpoint();
    assert_eq!(numbers(&rig), Vec::<u64>::new());
    rig.checkpoint();
    assert_eq!(numbers(&rig), [2, 2]);
    // The one that goes on is not disturbed.
    rig.checkpoint();
    rig.checkpoint();
    assert_eq!(numbers(&rig), [2, 2]);
    for (node, order) in orders(&rig) {
        rehearsed(&mut rig, node, &order);
    }
    rig.checkpoint();
    assert_eq!(numbers(&rig), [2, 2, 5, 5]);
}
