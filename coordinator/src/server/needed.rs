//! What an order takes: the grants without which its node could not execute it.

use protocol::cluster::agent::ToAgent;
use protocol::cluster::dmtcp::DmtcpOrder;
use protocol::cluster::grant::Scope;
use protocol::cluster::look::Look;
use protocol::cluster::{InstanceKey, NodeName};

/// What a node must be granted to execute an order.
#[must_use]
pub fn needed(order: &ToAgent, own: &NodeName) -> Vec<Scope> {
    let offers = |key: &InstanceKey, partners: &[NodeName]| -> Vec<Scope> {
        others(partners, own).map(|partner| Scope::offer(key, own, partner)).collect()
    };
    let fetches = |job: &str, image, holders: &[NodeName]| -> Vec<Scope> {
        others(holders, own).map(|holder| Scope::fetch(job, image, holder, own)).collect()
    };
    match order {
        ToAgent::Launch(order) => offers(&order.key, &order.partners),
        ToAgent::Partners { key, nodes } => offers(key, nodes),
        ToAgent::Prepare(order) => {
            let mut all = fetches(&order.key.job, (order.image, order.checkpoint), &order.holders);
            all.extend(offers(&order.key, &order.partners));
            all
        }
        ToAgent::Copy { job, instance, checkpoint, holders, .. } => {
            fetches(job, (*instance, *checkpoint), holders)
        }
        ToAgent::Give { job, image, holder, .. } => {
            fetches(job, (image.instance, image.checkpoint), std::slice::from_ref(holder))
        }
        ToAgent::Dmtcp(DmtcpOrder::Restart { image, holders, .. }) => {
            fetches(&image.job, (image.instance, image.checkpoint), holders)
        }
        _ => Vec::new(),
    }
}

/// The job whose images the node must be able to read or write to execute an order.
#[must_use]
pub fn needed_key(order: &ToAgent) -> Option<&str> {
    match order {
        ToAgent::Launch(order) => Some(&order.key.job),
        ToAgent::Prepare(order) => Some(&order.key.job),
        ToAgent::Rehearse(order) => Some(&order.job),
        ToAgent::Adopt(order) => Some(&order.job),
        ToAgent::Look { job, look: Look::Inspect, .. } => Some(job),
        // Whoever keeps or passes on a copy, or checks it, does so without its key.
        _ => None,
    }
}

fn others<'a>(nodes: &'a [NodeName], own: &'a NodeName) -> impl Iterator<Item = &'a NodeName> {
    nodes.iter().filter(move |node| *node != own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::agent::InstanceId;

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    #[test]
    fn whoever_only_keeps_a_copy_gets_no_key() {
        let copy = ToAgent::Copy {
            job: "job".to_owned(),
            instance: InstanceId(2),
            checkpoint: 7,
            holders: vec![node("b")],
            digest: String::new(),
        };
        assert_eq!(needed_key(&copy), None);
        let key = InstanceKey { job: "job".to_owned(), epoch: 1, instance: InstanceId(2) };
        assert_eq!(needed_key(&ToAgent::Partners { key, nodes: vec![node("b")] }), None);
        let look = |look| ToAgent::Look { client: 1, job: "job".to_owned(), images: vec![], look };
        assert_eq!(needed_key(&look(Look::Verify)), None);
        assert_eq!(needed_key(&look(Look::Inspect)), Some("job"));
    }

    #[test]
    fn an_order_grants_what_it_takes_and_no_more() {
        let (own, other) = (node("a"), node("b"));
        let order = ToAgent::Copy {
            job: "job".to_owned(),
            instance: InstanceId(2),
            checkpoint: 7,
            holders: vec![own.clone(), other.clone()],
            digest: String::new(),
        };
        let fetch = Scope::fetch("job", (InstanceId(2), 7), &other, &own);
        assert_eq!(needed(&order, &own), [fetch]);
        let key = InstanceKey { job: "job".to_owned(), epoch: 1, instance: InstanceId(2) };
        let partners = ToAgent::Partners { key: key.clone(), nodes: vec![other.clone()] };
        assert_eq!(needed(&partners, &own), [Scope::offer(&key, &own, &other)]);
        assert_eq!(needed(&ToAgent::Heard { sequence: 1 }, &own), []);
    }
}
