//! Nothing runs on a node while the lease is over: the coordinator may have begun it anew elsewhere.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use ckpt_node::{Action, Adopted, BatteryGuard, BootTime, Event, Made, Node, Own, Record};
use protocol::agent::InstanceId;
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::{JobUser, LaunchOrder, NodeProfile, ToAgent};
use protocol::cluster::succession::Followed;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::LaunchSpec;
use serde_json::{from_value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

const MS: BootTime = 1_000_000;

/// What a welcome grants, in milliseconds from the sending of the hello.
const LEASE_MS: u64 = 2400;

fn node() -> Node {
    let profile = json!({
        "address": "10.0.0.1:7000", "wire": "10.0.0.1:7001", "slots": 2, "cores": 2, "speed": null,
        "architecture": "x86_64", "page_size": 4096, "vdso": "00", "memory": 1 << 30, "kernel": "6", "allow_root": true
    });
    Node::new(Own {
        name: name(),
        profile: from_value::<NodeProfile>(profile).unwrap(),
        battery: BatteryGuard::new(None),
        followed: Followed::default(),
    })
}

fn name() -> NodeName {
    "node1".parse().unwrap()
}

/// Of the first instance of a job.
fn order() -> LaunchOrder {
    LaunchOrder {
        key: InstanceKey { job: "queens-1".to_owned(), epoch: 1, instance: InstanceId(1) },
        logical_node: name(),
        hosts: String::new().into(),
        launch: LaunchSpec::through_pipes(vec!["prog".into()], "/".into()),
        is_root: true,
        user: JobUser { uid: 1000, name: "user".to_owned() },
        settings: from_value(json!({ "external": "warn", "copies": 1 })).unwrap(),
        partners: Vec::new(),
        shell: None,
        addresses: AddressMap::default(),
    }
}

/// The node says hello at this time, and is welcome at once.
fn joins(node: &mut Node, now: BootTime) {
    let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 7000));
    let addresses = vec![address.ip()];
    node.step(now, Event::Connected { connection: 1, address, addresses });
    node.step(now, Event::AllFound);
    let (coordinator, epochs) = (Followed::default(), BTreeMap::from([("queens-1".to_owned(), 1)]));
    let welcome = ToAgent::Welcome { coordinator, heartbeat_ms: 300, lease_ms: LEASE_MS, epochs };
    hears(node, now, welcome);
}

fn hears(node: &mut Node, now: BootTime, message: ToAgent) -> Vec<Action> {
    node.step(now, Event::Coordinator { connection: 1, message, body: Vec::new() })
}

fn ticks(node: &mut Node, now: BootTime) -> Vec<Action> {
    node.step(now, Event::Tick { address_lost: false, charge: None })
}

fn launches(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Launch(_)))
}

fn holds(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Hold(_)))
}

#[test]
fn an_order_that_comes_after_the_lease_waits_for_the_next_one() {
    let mut node = node();
    joins(&mut node, 1000 * MS);
    let late = (1000 + LEASE_MS) * MS;
    let launch = || ToAgent::Launch(Box::new(order()));
    assert!(!launches(&hears(&mut node, late, launch())));
    let sequence = ticks(&mut node, late + MS).iter().find_map(|action| match action {
        Action::Beat { sequence, .. } => Some(*sequence),
        _ => None,
    });
    let heard = ToAgent::Heard { sequence: sequence.unwrap() };
    assert!(launches(&hears(&mut node, late + 2 * MS, heard)));
}

#[test]
fn an_order_that_waits_for_the_lease_is_forgotten_with_its_epoch() {
    let mut node = node();
    joins(&mut node, 1000 * MS);
    let late = (1000 + LEASE_MS) * MS;
    hears(&mut node, late, ToAgent::Launch(Box::new(order())));
    let kill = ToAgent::Kill { job: "queens-1".to_owned(), below: 2 };
    let done = hears(&mut node, late + MS, kill);
    assert!(!done.iter().any(|action| matches!(action, Action::Kill(_))), "{done:?}");
    let told = |action: &Action| format!("{action:?}").contains("Killed");
    assert!(done.iter().any(told), "{done:?}");
}

/// An agent that is started again knows of no lease of its own; what it takes over was let run until then.
#[test]
fn what_was_taken_over_is_held_when_the_lease_of_the_agent_before_ends() {
    let mut node = node();
    let adopted = |lease_until| Adopted {
        made: Made { init: 7, ..Made::default() },
        held: false,
        lease_until,
        ended: None,
        empty: false,
        touched: false,
    };
    let record = Record::of_launch(&order());
    let found = node.step(1000 * MS, Event::Found(Box::new(record.clone()), adopted(1700 * MS)));
    let clock = |action: &Action| matches!(action, Action::Clock(at) if *at == 1700 * MS);
    assert!(found.iter().any(clock), "{found:?}");
    assert!(!holds(&ticks(&mut node, 1500 * MS)));
    assert!(holds(&node.step(1700 * MS, Event::Clock)));

    // One that an older init did not tell of: until the first heartbeat.
    let mut node = self::node();
    let found = node.step(1000 * MS, Event::Found(Box::new(record), adopted(0)));
    assert!(!holds(&found));
    assert!(holds(&ticks(&mut node, 1500 * MS)));
}
