//! Machines that wait until another one is gone.

use super::machine::Machine;
use protocol::cluster::NodeName;
use std::collections::BTreeSet;

/// Of the spares of a job, those that go on waiting. `present`: how many other machines may have its processes; `wanted`: on
/// how many it was. For each that is missing a spare is called in, the one with the fewest processes of other jobs, then the
/// fastest; the job is never left without any machine.
pub fn waiting(spares: &[&Machine], present: usize, wanted: usize) -> BTreeSet<NodeName> {
    let least = usize::from(present == 0);
    let missing = wanted.saturating_sub(present).max(least);
    let mut best = spares.to_vec();
    best.sort_by(|one, other| {
        let by_rate = other.rate().total_cmp(&one.rate());
        one.busy.cmp(&other.busy).then(by_rate).then_with(|| one.name.cmp(&other.name))
    });
    best.into_iter().skip(missing).map(|machine| machine.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::cluster::image::Requirements;

    fn machine(name: &str, speed: f64) -> Machine {
        Machine {
            name: name.parse().unwrap(),
            slots: 2,
            cpus: 2,
            cores: 2.0,
            speed,
            speed_all: speed,
            busy: 0,
            offer: Requirements::default(),
        }
    }

    #[test]
    fn a_spare_is_called_in_for_each_machine_that_is_missing() {
        let spares = [machine("d", 1.0), machine("e", 2.0), machine("f", 1.0)];
        let of = |present, wanted| -> Vec<String> {
            let waiting = waiting(&spares.each_ref(), present, wanted);
            waiting.iter().map(|name| name.as_str().to_owned()).collect()
        };
        assert_eq!(of(3, 3), ["d", "e", "f"]);
        assert_eq!(of(4, 3), ["d", "e", "f"]);
        assert_eq!(of(2, 3), ["d", "f"], "the fastest one goes first");
        assert_eq!(of(1, 3), ["f"]);
        assert!(of(0, 9).is_empty());
        assert_eq!(of(0, 0), ["d", "f"], "a job that begins, or begins anew, is somewhere");
    }
}
