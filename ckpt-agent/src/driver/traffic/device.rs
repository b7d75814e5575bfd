//! The device through which jobs' packets come to the agent, and what leads them there.
//!
//! The device outlives an agent that is killed, with routes and rules: without an agent it drops what it gets. Behind each
//! route through it there is one that leads nowhere, for a device that somebody removes. So nothing goes out unencrypted
//! until somebody takes all of it away ([`clear`]).

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use ckpt_engine::sys::rtnetlink::{Network, Route, Rule, Verdict, Way};
use ckpt_engine::sys::tun::{self, Life};

use super::TrafficError;
use super::plan::{OWNER, Plan, TABLE};

/// How what is noted about a device begins; the agent's folder follows.
const ALIAS: &str = "ckptd: encrypted traffic of jobs in ";
/// Bytes of a folder's name that are noted, from its end: the kernel takes 255 in all (IFALIASZ).
const LONGEST_NAME: usize = 200;
/// Bytes of the longest packet: with this one no datagram of IPv4 comes in parts.
pub const LONGEST: u32 = 65_535;
/// Names that are tried.
const NAMES: u32 = 64;
/// Metrics of the two routes to each address.
const THROUGH: u32 = 10;
const NOWHERE: u32 = 20;

/// The device.
#[derive(Debug)]
pub struct Device {
    /// Its packets.
    pub file: File,
    /// Its name.
    pub name: String,
    index: u32,
    network: Network,
}

impl Device {
    /// Makes one, or takes over the one that an agent of before has left; nothing leads to a new one.
    ///
    /// # Errors
    /// See [`TrafficError`]. Nothing is left then that was not there before.
    pub fn open(dir: &Path) -> Result<Self, TrafficError> {
        let mut network = Network::open().map_err(TrafficError::at("ask for devices"))?;
        let devices = network.devices().map_err(TrafficError::at("list devices"))?;
        let left = devices.iter().find(|device| device.alias.starts_with(ALIAS));
        if let Some(other) = left.filter(|device| device.alias != alias(dir)) {
            return Err(TrafficError::Others(other.name.clone(), other.alias.clone()));
        }
        let is_free = |name: &String| !devices.iter().any(|device| device.name == *name);
        let name = match left {
            Some(device) => device.name.clone(),
            None => (0..NAMES).map(|number| format!("ckptd{number}")).find(is_free).ok_or_else(
                || TrafficError::at("name a device")(io::ErrorKind::AddrInUse.into()),
            )?,
        };
        let file = open(&name)?;
        settings(&name)?;
        let devices = network.devices().map_err(TrafficError::at("list devices"))?;
        let made = devices.iter().find(|device| device.name == name);
        let index = made.map(|device| device.index).ok_or_else(|| {
            TrafficError::at(format!("find {name}"))(io::ErrorKind::NotFound.into())
        })?;
        let up = network.set_up(index, LONGEST, &alias(dir));
        up.map_err(TrafficError::at(format!("set {name} up")))?;
        tun::set_life(&file, Life::Own).map_err(TrafficError::at(format!("keep {name}")))?;
        Ok(Self { file, name, index, network })
    }

    /// Addresses to which nothing goes unencrypted so far.
    ///
    /// # Errors
    /// See [`TrafficError`].
    pub fn routed(&mut self) -> Result<BTreeSet<IpAddr>, TrafficError> {
        let routes = self.network.routes(TABLE, OWNER).map_err(TrafficError::at("list routes"))?;
        Ok(routes.into_iter().map(|route| route.to).collect())
    }

    /// Lets the kernel do as planned. What is to be encrypted is so before anything is taken away.
    ///
    /// # Errors
    /// See [`TrafficError`]. What has been planned before goes on to count, as far as nothing else could be set.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), TrafficError> {
        let listed = || TrafficError::at("list rules");
        let before = self.network.rules(OWNER).map_err(listed())?;
        let leads = |rule: &&Rule| matches!(rule.verdict, Verdict::Table(_));
        // First those at the end, to which exceptions lead.
        self.add(plan.rules.iter().rev().filter(|rule| !leads(rule)), &before)?;
        self.set_routes(plan)?;
        self.add(plan.rules.iter().filter(leads), &before)?;
        for rule in before.iter().filter(|rule| !plan.rules.contains(rule)) {
            self.network.remove_rule(rule).map_err(TrafficError::at("remove a rule"))?;
        }
        let after: BTreeSet<_> = self.network.rules(OWNER).map_err(listed())?.into_iter().collect();
        let families: BTreeSet<_> = after.iter().map(|rule| rule.family).collect();
        let there = plan.rules.iter().filter(|rule| families.contains(&rule.family));
        match there.clone().all(|rule| after.contains(rule)) && !after.is_empty() {
            true => Ok(()),
            false => Err(TrafficError::Rules),
        }
    }

    fn add<'a>(
        &mut self,
        rules: impl Iterator<Item = &'a Rule>,
        before: &[Rule],
    ) -> Result<(), TrafficError> {
        for rule in rules.filter(|rule| !before.contains(rule)) {
            let added = unless_unknown(self.network.add_rule(rule));
            added.map_err(TrafficError::at("add a rule"))?;
        }
        Ok(())
    }

    fn set_routes(&mut self, plan: &Plan) -> Result<(), TrafficError> {
        let listed = TrafficError::at("list routes");
        let before = self.network.routes(TABLE, OWNER).map_err(listed)?;
        let route = |metric, to, way| Route { table: TABLE, owner: OWNER, metric, to, way };
        for (to, source) in &plan.routed {
            let mut wanted = vec![route(NOWHERE, *to, Way::Unreachable)];
            let through = |source| Way::Device { index: self.index, source };
            wanted.extend(source.map(|source| route(THROUGH, *to, through(source))));
            for route in wanted.iter().filter(|route| !before.contains(route)) {
                let set = unless_unknown(self.network.set_route(route));
                set.map_err(TrafficError::at(format!("set the route to {to}")))?;
            }
        }
        for route in before.iter().filter(|route| !plan.routed.contains_key(&route.to)) {
            let removed = self.network.remove_route(route);
            removed.map_err(TrafficError::at(format!("remove the route to {}", route.to)))?;
        }
        Ok(())
    }
}

/// By a protocol that the kernel does not know nothing goes anyway.
fn unless_unknown(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) =>
        {
            Ok(())
        }
        done => done,
    }
}

/// What the kernel is to do with the device. Without IPv6 it has no settings for that.
fn settings(name: &str) -> Result<(), TrafficError> {
    // What comes has been checked already: its way back may be another one (Documentation/networking/ip-sysctl.rst).
    let filter = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
    std::fs::write(&filter, "2").map_err(TrafficError::at(format!("write {filter}")))?;
    for (setting, value) in [("addr_gen_mode", "1"), ("accept_ra", "0")] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{setting}"), value);
    }
    Ok(())
}

/// What there is of an agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// What one that was killed has left.
    Orphaned,
}

/// What is noted about the device of the agent of that folder.
fn alias(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mut name = dir.to_string_lossy().into_owned();
    while name.len() > LONGEST_NAME {
        name.remove(0);
    }
    format!("{ALIAS}{name}")
}

/// What the agent of that folder has left.
///
/// # Errors
/// [`TrafficError::Taken`] where one lives; others.
pub fn left(dir: &Path) -> Result<Left, TrafficError> {
    let mut network = Network::open().map_err(TrafficError::at("ask for devices"))?;
    let devices = network.devices().map_err(TrafficError::at("list devices"))?;
    let rules = network.rules(OWNER).map_err(TrafficError::at("list rules"))?;
    let agents = || devices.iter().filter(|device| device.alias.starts_with(ALIAS));
    let own = agents().find(|device| device.alias == alias(dir));
    if let Some(device) = own {
        drop(open(&device.name)?);
    }
    // Somebody may have removed the device by hand.
    let is_left = own.is_some() || (agents().next().is_none() && !rules.is_empty());
    Ok(if is_left { Left::Orphaned } else { Left::Nothing })
}

/// Takes away what agents that were killed have left. What jobs send goes unencrypted from then on.
///
/// # Errors
/// [`TrafficError::Taken`] where one lives; others.
pub fn clear() -> Result<(), TrafficError> {
    let mut network = Network::open().map_err(TrafficError::at("ask for devices"))?;
    let devices = network.devices().map_err(TrafficError::at("list devices"))?;
    for device in devices.iter().filter(|device| device.alias.starts_with(ALIAS)) {
        drop(open(&device.name)?);
    }
    remove()
}

fn open(name: &str) -> Result<File, TrafficError> {
    tun::open(name).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => TrafficError::Taken(name.to_owned()),
        _ => TrafficError::at(format!("make the device {name} by {}", tun::DEVICE))(error),
    })
}

/// Takes rules, routes and device away.
pub(super) fn remove() -> Result<(), TrafficError> {
    let mut network = Network::open().map_err(TrafficError::at("ask for devices"))?;
    for rule in network.rules(OWNER).map_err(TrafficError::at("list rules"))? {
        network.remove_rule(&rule).map_err(TrafficError::at("remove a rule"))?;
    }
    for route in network.routes(TABLE, OWNER).map_err(TrafficError::at("list routes"))? {
        network.remove_route(&route).map_err(TrafficError::at("remove a route"))?;
    }
    let devices = network.devices().map_err(TrafficError::at("list devices"))?;
    for device in devices.iter().filter(|device| device.alias.starts_with(ALIAS)) {
        let removed = network.remove_device(device.index);
        removed.map_err(TrafficError::at(format!("remove {}", device.name)))?;
    }
    Ok(())
}
