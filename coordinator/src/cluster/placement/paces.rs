//! Machines that have become slower or faster since a job was last placed.

use super::Machine;
use protocol::cluster::NodeName;
use std::collections::BTreeMap;

/// A machine that does less than this part of what it did, or more than its inverse, has changed: a third less is a
/// change, whatever noise is in both measurements.
const CHANGED: f64 = 0.75;

/// What machines got done at a time when a job was last placed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Paces {
    then: BTreeMap<NodeName, f64>,
}

impl Paces {
    /// The job is placed by these.
    pub fn note(&mut self, machines: &[Machine]) {
        self.then.clear();
        let rate = |machine: &Machine| (machine.name.clone(), machine.rate());
        self.then.extend(machines.iter().map(rate));
    }

    /// Which have changed, with what each gets done now in what it got done then. One that was not there then is
    /// taken as it is now.
    pub fn changed(&mut self, machines: &[Machine]) -> BTreeMap<NodeName, f64> {
        let mut changed = BTreeMap::new();
        for machine in machines {
            let now = machine.rate();
            let then = *self.then.entry(machine.name.clone()).or_insert(now);
            let ratio = now / then;
            if is_change(ratio) {
                changed.insert(machine.name.clone(), ratio);
            }
        }
        changed
    }

    /// Whether one that was there then has become slower or faster.
    #[must_use]
    pub fn has_changed(&self, name: &NodeName, rate: f64) -> bool {
        self.then.get(name).is_some_and(|then| is_change(rate / then))
    }
}

fn is_change(ratio: f64) -> bool {
    ratio < CHANGED || ratio * CHANGED > 1.0
}
