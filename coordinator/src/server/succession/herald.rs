//! Tells those who may not know yet that there is another coordinator.

use protocol::cluster::NodeName;
use protocol::cluster::succession::{FromSuccessor, ToSuccessor};
use protocol::transport::Successor;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(2);
/// How long one of them may take to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// Tells absent members, and the coordinators at these addresses, for ever. None of them is told at all
/// by the first coordinator of a cluster: there is nobody else whom they could follow.
pub async fn announce(
    successor: Successor,
    mut lost: Vec<String>,
    absent: watch::Receiver<Vec<(NodeName, SocketAddr)>>,
) {
    if successor.followed().term <= 1 {
        return;
    }
    lost.retain(|address| !successor.followed().addresses.contains(address));
    let mut told = BTreeSet::new();
    let mut said = BTreeSet::new();
    loop {
        let members = absent.borrow().clone();
        for (node, address) in members {
            let answer = timeout(LIMIT, follow(&successor, &node, address)).await;
            if let Ok(Some(ToSuccessor::Refused { followed })) = answer {
                if said.insert(node.clone()) {
                    tracing::warn!(
                        "{node} follows another coordinator, of term {}, at {}: end that one",
                        followed.term,
                        followed.addresses.join(", ")
                    );
                }
            }
        }
        for address in &lost {
            if let Ok(Ok(true)) = timeout(LIMIT, successor.tell_coordinator(address)).await {
                if told.insert(address.clone()) {
                    tracing::info!("the coordinator that was at {address} is back, and ends");
                }
            }
        }
        sleep(PAUSE).await;
    }
}

async fn follow(
    successor: &Successor,
    node: &NodeName,
    address: SocketAddr,
) -> Option<ToSuccessor> {
    let mut link = successor.connect_agent(node, address).await.ok()?;
    let follow = FromSuccessor::Follow(successor.followed().clone());
    link.sender.send(&follow, &[]).await.ok()?;
    Some(link.receiver.receive().await.ok()??.0)
}
