//! The hosts that launchers are told: members of the cluster with their slots.

use protocol::cluster::settings::{JobSettings, Traffic, Trust};
use serde_json::Value;
use std::ffi::OsString;

/// The member of a cluster that takes processes of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub name: String,
    pub slots: u64,
}

/// The members that take processes of a job with such settings.
pub(super) fn hosts(nodes: &Value, settings: &JobSettings) -> Vec<Host> {
    let Some(nodes) = nodes.as_array() else { return Vec::new() };
    let mut hosts = Vec::new();
    for node in nodes {
        let name = node.get("name").and_then(Value::as_str);
        let slots = node.get("slots").and_then(Value::as_u64).unwrap_or(0);
        let waits = node.get("spare").and_then(Value::as_bool).unwrap_or(false);
        let state = node.get("state").and_then(Value::as_str);
        let least =
            node.get("trust").and_then(|least| protocol::json::of_value::<Trust>(least).ok());
        let of_node = node.get("job_traffic");
        let traffic = of_node.and_then(|how| protocol::json::of_value::<Traffic>(how).ok());
        let takes = least.is_some_and(|least| least <= settings.trust)
            && (settings.traffic == Traffic::Clear || traffic == Some(Traffic::Encrypted));
        if let (Some(name), 1.., Some("alive"), true) = (name, slots, state, takes && !waits) {
            hosts.push(Host { name: name.to_owned(), slots });
        }
    }
    hosts
}

/// NAME:SLOTS,...
pub(super) fn with_slots(hosts: &[Host]) -> OsString {
    let hosts: Vec<String> =
        hosts.iter().map(|host| format!("{}:{}", host.name, host.slots)).collect();
    hosts.join(",").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_become_hosts_with_slots() {
        let nodes = json!([
            {"name": "a", "slots": 2, "state": "alive", "trust": "own"},
            {"name": "b", "slots": 0, "state": "alive", "trust": "root"},
            {"name": "c", "slots": 4, "state": "gone", "trust": "root"},
            {"name": "d", "slots": 1, "state": "alive", "trust": "root", "job_traffic": "encrypted"},
            {"name": "e", "slots": 1, "state": "alive", "trust": "any"},
            {"name": "f", "slots": 1, "state": "alive", "trust": null},
            {"name": "g", "slots": 1, "state": "alive", "trust": "own", "spare": true},
            {"name": "h", "slots": 1, "state": "drained", "drained": true, "trust": "own"},
        ]);
        let of = |trust, traffic| {
            let settings = JobSettings { trust, traffic, ..JobSettings::default() };
            with_slots(&hosts(&nodes, &settings)).into_string().unwrap()
        };
        assert_eq!(of(Trust::Own, Traffic::Clear), "a:2");
        assert_eq!(of(Trust::Root, Traffic::Clear), "a:2,d:1");
        assert_eq!(of(Trust::Any, Traffic::Clear), "a:2,d:1,e:1");
        assert_eq!(of(Trust::Any, Traffic::Encrypted), "d:1");
        assert!(hosts(&Value::Null, &JobSettings::default()).is_empty());
    }
}
