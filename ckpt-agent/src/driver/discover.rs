//! Finds the coordinator by multicast DNS, where none of its known addresses answers.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use mdns_sd::{ServiceDaemon, ServiceEvent};
use protocol::task;
use protocol::transport::{DISCOVERY_AUTHORITY, DISCOVERY_SERVICE, Fingerprint};
use tokio::net::TcpStream;

/// How long one known address may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long announcements are waited for.
const SEARCH_LIMIT: Duration = Duration::from_secs(6);
/// How long more of them are waited for after the first.
const AFTERTHOUGHT: Duration = Duration::from_millis(300);
/// Addresses that are tried.
const MOST: usize = 16;

/// The addresses at which a coordinator of this authority may be: the known ones if one of them
/// answers, else those that are announced, and then the known ones.
pub(super) async fn addresses(known: &[String], authority: &Fingerprint) -> Vec<String> {
    for address in known {
        let connecting = tokio::time::timeout(ANSWER_LIMIT, TcpStream::connect(address));
        if matches!(connecting.await, Ok(Ok(_))) {
            return known.to_vec();
        }
    }
    tracing::info!("no coordinator at {}: looking for its announcement", known.join(", "));
    let wanted = authority.clone();
    let mut found = match task::spawn_blocking(move || search(&wanted)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            tracing::warn!("failed to look for the coordinator's announcement: {error}");
            Vec::new()
        }
        Err(_) => Vec::new(),
    };
    match found.as_slice() {
        [] => tracing::warn!("no coordinator of this cluster announces itself"),
        found => tracing::info!("the coordinator is announced at {}", found.join(", ")),
    }
    let old: Vec<String> = known.iter().filter(|old| !found.contains(old)).cloned().collect();
    found.extend(old);
    found.truncate(MOST);
    found
}

fn search(authority: &Fingerprint) -> Result<Vec<String>, mdns_sd::Error> {
    let daemon = ServiceDaemon::new()?;
    let events = daemon.browse(DISCOVERY_SERVICE)?;
    let authority = authority.to_string();
    let mut found: BTreeSet<(bool, SocketAddr)> = BTreeSet::new();
    let mut deadline = Instant::now() + SEARCH_LIMIT;
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        let Ok(event) = events.recv_timeout(left) else { break };
        let ServiceEvent::ServiceResolved(service) = event else { continue };
        // Other clusters may be there, too.
        if service.get_property_val_str(DISCOVERY_AUTHORITY) != Some(&authority) {
            continue;
        }
        let addresses = service.addresses.iter().map(mdns_sd::ScopedIp::to_ip_addr);
        for ip in addresses.filter(usable).take(MOST) {
            found.insert((ip.is_ipv6(), SocketAddr::new(ip, service.port)));
        }
        if !found.is_empty() {
            deadline = deadline.min(Instant::now() + AFTERTHOUGHT);
        }
    }
    if let Ok(done) = daemon.shutdown() {
        let _ = done.recv_timeout(AFTERTHOUGHT);
    }
    Ok(found.into_iter().take(MOST).map(|(_, address)| address.to_string()).collect())
}

/// An address of one link means nothing without the link's name.
fn usable(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast() && !v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_lead_nowhere_are_left_out() {
        for (text, good) in [
            ("10.0.0.1", true),
            ("0.0.0.0", false),
            ("224.0.0.251", false),
            ("fd00::1", true),
            ("fe80::1", false),
            ("::", false),
        ] {
            assert_eq!(usable(&text.parse().unwrap()), good, "{text}");
        }
    }

    #[tokio::test]
    async fn an_address_that_answers_is_kept() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let known = vec![listener.local_addr().unwrap().to_string()];
        let authority = "0".repeat(64);
        let authority: Fingerprint =
            serde_json::from_value(serde_json::Value::String(authority)).unwrap();
        assert_eq!(addresses(&known, &authority).await, known);
    }
}
