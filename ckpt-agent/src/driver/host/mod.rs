//! What this machine offers, and how it is.

mod accounts;
mod achieved;
mod allowance;
mod battery;
mod clock;
mod efforts;
mod gauge;
mod speed;
mod vitals;

pub use accounts::is_known;
use ckpt_engine::sys::standing::acts_for_all;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use nix::unistd::Uid;
use protocol::clock::wall_ms;
use protocol::cluster::agent::{JobUser, NodeProfile};

use super::AgentOptions;
use ckpt_engine::arch::{Architecture, Current};
use ckpt_engine::dump::page_size;
use ckpt_engine::proc::read_maps;
use ckpt_engine::sys::cpu_features;
use ckpt_engine::trace::Vdso;

pub use battery::Battery;
pub use efforts::efforts;
pub use gauge::{Gauge, Nominal};
pub use vitals::vitals;

/// Most slots that a node may offer.
const MOST_SLOTS: u32 = 65_536;
/// Most addresses of one machine that are told.
const MOST_ADDRESSES: usize = 64;

/// What is offered, but for the addresses, which depend on the connection to the coordinator.
#[must_use]
pub fn profile(options: &AgentOptions, nominal: &Nominal) -> NodeProfile {
    NodeProfile {
        address: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        addresses: Vec::new(),
        slots: options.slots.unwrap_or(nominal.cpus).min(MOST_SLOTS),
        spare: options.spare,
        cores: nominal.cpus,
        capacity: Some(nominal.cores),
        speed: Some(nominal.speed),
        speed_all: Some(nominal.speed_all),
        speed_given: nominal.is_given,
        architecture: std::env::consts::ARCH.to_owned(),
        page_size: page_size(),
        vdso: vdso().unwrap_or_default(),
        features: cpu_features::offered().to_vec(),
        memory_top: Current::user_top(),
        memory: vitals::meminfo("MemTotal:").unwrap_or_default(),
        kernel: nix::sys::utsname::uname()
            .map(|name| name.release().to_string_lossy().into_owned())
            .unwrap_or_default(),
        // Only root makes an agent that may become others.
        owner: Some(JobUser::of(if acts_for_all() { 0 } else { Uid::effective().as_raw() })),
        takes: accounts::takes(options.shared),
        allow_root: options.allow_root,
        // Known once it does.
        job_traffic: None,
        started_ms: wall_ms(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Addresses of this machine by which others may know it, the first one being that by which its agent is
/// reached.
#[must_use]
pub fn addresses(own: IpAddr) -> Vec<IpAddr> {
    let own = own.to_canonical();
    let mut found = vec![own];
    for interface in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let Some(address) = interface.address else { continue };
        let ip: Option<IpAddr> = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => Some(v4.ip().into()),
            (_, Some(v6)) => Some(v6.ip().into()),
            _ => None,
        };
        let usable = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
            // fe80::/10 means another machine on each link.
            IpAddr::V6(ip) => !ip.is_loopback() && (ip.segments()[0] & 0xffc0) != 0xfe80,
        };
        if let Some(ip) = ip.filter(|ip| usable(ip) && !found.contains(ip)) {
            if found.len() < MOST_ADDRESSES {
                found.push(ip);
            }
        }
    }
    found
}

/// Whether an address is this machine's. Asked by taking a port there: Android does not show its apps the interfaces.
#[must_use]
pub fn has_address(ip: IpAddr) -> bool {
    let taken = UdpSocket::bind((ip.to_canonical(), 0));
    !matches!(taken, Err(error) if error.kind() == ErrorKind::AddrNotAvailable)
}

/// The vdso's hash, as a graph records it: the whole mapping's.
fn vdso() -> Option<String> {
    let own = std::process::id() as i32;
    Vdso::of(own, &read_maps(own).ok()?).ok().map(|vdso| vdso.hash())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_for_ones_own() {
        assert!(has_address("127.0.0.1".parse().unwrap()));
        // Of documentation (RFC 5737).
        assert!(!has_address("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn this_machine_has_a_vdso() {
        assert_eq!(vdso().unwrap().len(), 64);
    }
}
