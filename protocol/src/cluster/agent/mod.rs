//! What coordinator and agent say to each other. Every message is a frame of a header (one of
//! these, as JSON) and a body of raw bytes, empty unless the message says what it is.

mod ends;
mod from_agent;
mod instance_report;
mod machine;
mod orders;
mod to_agent;

pub use ends::{
    Fallen, MovedListener, OuterSocket, RelayLink, RelaySide, Rewire, Skipped, stream_relay,
};
pub use from_agent::FromAgent;
pub use instance_report::{InstanceReport, Stream};
pub use machine::{
    HeldInstance, Holding, JobTraffic, MOST_ACCOUNTS, NodeProfile, Peer, Takes, Vitals,
};
pub use orders::{
    DEPARTED, DamagedCopy, InstanceSettings, JobUser, LaunchOrder, PrepareOrder, ShellCall,
};
pub use to_agent::ToAgent;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::InstanceId;
    use std::collections::BTreeMap;

    /// An enum that is told apart by a field inside could not have numbers as keys: serde keeps
    /// its content aside as text.
    #[test]
    fn numbers_as_keys_survive_the_way() {
        let images = BTreeMap::from([(InstanceId(7), vec![1, 2])]).into();
        let message = ToAgent::Keep { job: "a-1".into(), images };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<ToAgent>(&text).unwrap(), message);
    }
}
