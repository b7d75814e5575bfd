//! What a machine gets done, and what it has to do.

use protocol::cluster::NodeName;
use protocol::cluster::image::Requirements;
use std::collections::BTreeMap;

/// A machine that may be given processes.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its node's name.
    pub name: NodeName,
    /// Processes that it takes.
    pub slots: u32,
    /// CPUs that jobs may use, part of one counted as a whole; 0: not known.
    pub cpus: u32,
    /// Cores' worth of time that jobs have there: of 0.6 two processes get 0.3 each.
    pub cores: f64,
    /// Relative speed of one core.
    pub speed: f64,
    /// Of each core while all are at work.
    pub speed_all: f64,
    /// Processes of other jobs that it runs.
    pub busy: u32,
    /// What it offers.
    pub offer: Requirements,
}

/// No machine is slower than this, and none has less of a core.
const LEAST: f64 = 1e-6;

impl Machine {
    /// Cores' worth of time for those it may be given.
    fn width(&self) -> f64 {
        let slots = f64::from(self.slots.max(1));
        if self.cores > 0.0 && self.cores.is_finite() {
            slots.min(self.cores).max(LEAST)
        } else {
            slots
        }
    }

    /// Speed of a core while so many are at work.
    fn speed_of(&self, cores: f64) -> f64 {
        let one = self.speed.max(LEAST);
        let all = self.speed_all.clamp(LEAST, one);
        let part = if self.cpus > 1 { (cores - 1.0) / f64::from(self.cpus - 1) } else { 0.0 };
        one + (all - one) * part.clamp(0.0, 1.0)
    }

    /// How much it gets done at a time, when it has enough to do.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.width() * self.speed_of(self.width())
    }

    /// How long it takes for so many processes' work at the same time, of which the largest one's is told: they
    /// share what there is, and none runs on more than a core.
    pub(super) fn time(&self, count: u32, work: f64, heaviest: f64) -> f64 {
        let width = self.width();
        let speed = self.speed_of(width.min(f64::from(count)));
        (work / (width * speed)).max(heaviest / (width.min(1.0) * speed))
    }
}

/// What a machine has to do.
#[derive(Debug, Clone, Default)]
pub(super) struct Load {
    pub(super) count: u32,
    pub(super) work: f64,
    /// How many processes of which work there are. Positive numbers are ordered like their bits.
    heavy: BTreeMap<u64, u32>,
}

/// A number of processes that are placed as one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Burden {
    pub(super) count: u32,
    pub(super) work: f64,
    /// The largest work among them.
    pub(super) heaviest: f64,
}

impl Load {
    /// Processes of which nothing more is known.
    pub(super) fn of(count: u32) -> Self {
        let mut load = Self::default();
        load.add(Burden { count, work: f64::from(count), heaviest: 1.0 });
        load
    }

    pub(super) fn add(&mut self, burden: Burden) {
        if burden.count > 0 {
            self.count = self.count.saturating_add(burden.count);
            self.work += burden.work;
            *self.heavy.entry(burden.heaviest.max(0.0).to_bits()).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, burden: Burden) {
        if burden.count > 0 {
            self.count = self.count.saturating_sub(burden.count);
            self.work = if self.count == 0 { 0.0 } else { self.work - burden.work };
            let bits = burden.heaviest.max(0.0).to_bits();
            if let Some(many) = self.heavy.get_mut(&bits) {
                *many -= 1;
                if *many == 0 {
                    self.heavy.remove(&bits);
                }
            }
        }
    }

    fn heaviest(&self) -> f64 {
        self.heavy.last_key_value().map_or(0.0, |(bits, _)| f64::from_bits(*bits))
    }

    pub(super) fn time(&self, machine: &Machine) -> f64 {
        machine.time(self.count, self.work, self.heaviest())
    }

    pub(super) fn time_with(&self, machine: &Machine, more: Burden) -> f64 {
        let count = self.count.saturating_add(more.count);
        machine.time(count, self.work + more.work, self.heaviest().max(more.heaviest))
    }

    pub(super) fn time_without(&self, machine: &Machine, less: Burden) -> f64 {
        let bits = less.heaviest.max(0.0).to_bits();
        let others = self.heavy.iter().rev().find(|(key, many)| **key != bits || **many > 1);
        let heaviest = others.map_or(0.0, |(bits, _)| f64::from_bits(*bits));
        let count = self.count.saturating_sub(less.count);
        machine.time(count, if count == 0 { 0.0 } else { self.work - less.work }, heaviest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpus: u32, cores: f64, speed: f64, speed_all: f64) -> Machine {
        Machine {
            name: "a".parse().unwrap(),
            slots: 8,
            cpus,
            cores,
            speed,
            speed_all,
            busy: 0,
            offer: Requirements::default(),
        }
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn each_gets_a_core_or_its_part_of_what_is_there() {
        let part = machine(1, 0.6, 1.0, 1.0);
        assert!(close(part.time(1, 1.0, 1.0), 1.0 / 0.6));
        assert!(close(part.time(4, 4.0, 1.0), 4.0 / 0.6));
        let two = machine(2, 2.0, 2.0, 2.0);
        assert!(close(two.time(1, 1.0, 1.0), 0.5));
        assert!(close(two.time(2, 2.0, 1.0), 0.5));
        assert!(close(two.time(3, 3.0, 1.0), 0.75));
        // One with much to do does not share its own end.
        assert!(close(two.time(3, 6.0, 4.0), 2.0));
        assert!(close(machine(0, 0.0, 1.0, 1.0).rate(), 8.0));
    }

    #[test]
    fn cores_that_share_are_slower_together() {
        let machine = machine(3, 3.0, 1.0, 0.6);
        assert!(close(machine.time(1, 1.0, 1.0), 1.0));
        assert!(close(machine.time(2, 2.0, 1.0), 1.0 / 0.8));
        assert!(close(machine.time(3, 3.0, 1.0), 1.0 / 0.6));
        assert!(close(machine.rate(), 1.8));
    }

    #[test]
    fn a_load_without_one_of_its_pieces_is_as_if_it_had_never_been() {
        let machine = machine(2, 2.0, 1.0, 1.0);
        let pieces = [(1, 1.0, 1.0), (1, 4.0, 4.0), (2, 3.0, 2.0), (1, 4.0, 4.0)];
        let pieces = pieces.map(|(count, work, heaviest)| Burden { count, work, heaviest });
        for less in 0..pieces.len() {
            let (mut with, mut without) = (Load::default(), Load::default());
            for (index, piece) in pieces.iter().enumerate() {
                with.add(*piece);
                if index != less {
                    without.add(*piece);
                }
            }
            let time = without.time(&machine);
            assert!(close(with.time_without(&machine, pieces[less]), time));
            assert!(close(without.time_with(&machine, pieces[less]), with.time(&machine)));
            with.remove(pieces[less]);
            assert!(close(with.time(&machine), time));
        }
    }
}
