//! How many tasks the machines of a cluster take: as many as they have slots, but for those that other jobs have.

use crate::cluster::Cluster;
use crate::farm::worker::Message;
use protocol::cluster::client::Ask;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

/// Tells of changes until nobody listens.
pub fn watch(cluster: &Cluster, prefix: &str, most: usize, tell: &UnboundedSender<Message>) {
    let mut known = None;
    while !tell.is_closed() {
        // Without a coordinator, it is as before.
        if let Ok(nodes) = cluster.listing("list the nodes", &Ask::Nodes) {
            let places = of(&nodes, prefix).min(most);
            if known != Some(places) && tell.send(Message::Places(places)).is_err() {
                return;
            }
            known = Some(places);
        }
        std::thread::sleep(LOOK);
    }
}

/// Those of a listing, for a farm whose jobs' names begin like that.
pub fn of(nodes: &Value, prefix: &str) -> usize {
    let places = |node: &Value| -> u64 {
        // Without a word about trust it takes nothing of this user's.
        let is_usable =
            node["state"] == "alive" && node["spare"] != true && !node["trust"].is_null();
        let instances = node["instances"].as_array().into_iter().flatten();
        let others = instances.filter_map(Value::as_str).filter(|name| !name.starts_with(prefix));
        match is_usable {
            true => node["slots"].as_u64().unwrap_or(0).saturating_sub(others.count() as u64),
            false => 0,
        }
    };
    let all: u64 = nodes.as_array().into_iter().flatten().map(places).sum();
    usize::try_from(all).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_are_those_that_nobody_else_has() {
        let nodes = json!([
            { "state": "alive", "slots": 4, "trust": "own", "instances": ["f.1.t1.1-1/1", "other-1/1"] },
            { "state": "alive", "slots": 4, "trust": "own", "instances": [], "spare": true },
            { "state": "alive", "slots": 4, "trust": null, "instances": [] },
            { "state": "drained", "slots": 4, "trust": "own", "instances": [] },
            { "state": "alive", "slots": 1, "trust": "own", "instances": ["a/1", "b/1"] },
            { "state": "gone", "slots": 8, "trust": "own", "instances": [] },
        ]);
        assert_eq!(of(&nodes, "f.1."), 3);
        assert_eq!(of(&json!(null), "f.1."), 0);
    }
}
