//! How much each process of a job has to do, learned from what its processes did from one committed checkpoint to the next, for
//! placements: so that two with much to do are not put together. All of it is in the log, with the checkpoints, so a
//! coordinator that is started again knows as much.
//!
//! The rooms: `interval` (what one interval tells, and when it tells nothing), `figures` (what several tell together). Where nothing
//! can be told all processes count alike.

mod figures;
mod interval;
#[cfg(test)]
mod simulated;

use super::entry::{ImageRecord, InstanceRecord, Origin};
use figures::{Figure, even_out};
use interval::{Silence, Spell, shares};
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::image::{Effort, Efforts};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// A process of an instance.
type Process = (InstanceId, i32);

/// What is known of one job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Works {
    /// What the newest checkpoint says of each instance.
    last: BTreeMap<InstanceId, Efforts>,
    #[serde(serialize_with = "to_list", deserialize_with = "from_list")]
    figures: BTreeMap<Process, Figure>,
    /// Why the last interval told nothing, if it did not.
    silence: Option<Silence>,
}

/// Names of JSON's objects are texts alone.
fn to_list<S: Serializer>(
    figures: &BTreeMap<Process, Figure>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(figures)
}

fn from_list<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Process, Figure>, D::Error> {
    Vec::deserialize(deserializer).map(|list: Vec<(Process, Figure)>| list.into_iter().collect())
}

/// Those that compute: parents are daemons and shells that wait for their children.
fn workers(image: &ImageRecord) -> impl Iterator<Item = i32> {
    let parents: BTreeSet<i32> =
        image.facts.processes.iter().map(|process| process.parent).collect();
    let units = image.facts.units.iter().filter(|unit| unit.load > 0);
    units.flat_map(|unit| unit.pids.iter().copied()).filter(move |pid| !parents.contains(pid))
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e3
}

impl Works {
    /// A checkpoint is committed.
    pub(super) fn see(&mut self, images: &BTreeMap<InstanceId, ImageRecord>) {
        if let Some(spells) = self.spells(images) {
            match shares(&spells) {
                Ok(shares) => {
                    self.silence = None;
                    for (process, share) in shares {
                        self.figures.entry(process).or_default().see(share);
                    }
                }
                Err(silence) => {
                    self.silence = Some(silence);
                    if silence == Silence::Short {
                        // It becomes a part of a longer one.
                        return;
                    }
                }
            }
        }
        let told = images
            .iter()
            .filter_map(|(instance, image)| Some((*instance, image.facts.efforts.clone()?)));
        self.last = told.collect();
    }

    /// What all that compute did since the checkpoint before; None where that is not known of all of them, as when some have come
    /// or gone.
    fn spells(&self, images: &BTreeMap<InstanceId, ImageRecord>) -> Option<Vec<Spell<Process>>> {
        let mut machines: BTreeMap<&NodeName, usize> = BTreeMap::new();
        let mut spells = Vec::new();
        for (instance, image) in images {
            let mut own = workers(image).peekable();
            if own.peek().is_none() {
                continue;
            }
            let number = machines.len();
            let machine = *machines.entry(&image.node).or_insert(number);
            let (before, now) = (self.last.get(instance)?, image.facts.efforts.as_ref()?);
            for pid in own {
                let of =
                    |efforts: &Efforts| -> Option<Effort> { efforts.processes.get(&pid).copied() };
                let (then, done) = (of(before)?, of(now)?);
                spells.push(Spell {
                    process: (*instance, pid),
                    machine,
                    speed: f64::from(image.speed_permille.max(1)) / 1e3,
                    user: seconds(then.user_ms, done.user_ms),
                    system: seconds(then.system_ms, done.system_ms),
                    waited: seconds(then.waited_ms, done.waited_ms),
                    time: seconds(before.at_ms, now.at_ms),
                    idle: now.idle_permille.map(|permille| f64::from(permille) / 1e3),
                });
            }
        }
        (!spells.is_empty()).then_some(spells)
    }

    /// Instances come to be from images: their processes have the same to do as before.
    pub(super) fn inherit(&mut self, instances: &BTreeMap<InstanceId, InstanceRecord>) {
        for (number, record) in instances {
            let Origin::Image { instance, assignment, part } = &record.origin else { continue };
            for (pid, _) in assignment.iter().filter(|(_, of)| *of == part) {
                if let Some(figure) = self.figures.get(&(*instance, *pid)).copied() {
                    self.figures.insert((*number, *pid), figure);
                }
            }
        }
    }

    /// Others will not be asked for any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(InstanceId) -> bool) {
        self.figures.retain(|(instance, _), _| wanted(*instance));
    }

    /// What each process of these images that computes has to do, in what an average one has, where it is known.
    pub(super) fn of<'a>(
        &self,
        images: impl Iterator<Item = (InstanceId, &'a ImageRecord)>,
    ) -> BTreeMap<InstanceId, BTreeMap<i32, f64>> {
        let all = images.flat_map(|(number, image)| workers(image).map(move |pid| (number, pid)));
        self.evened_out(all)
    }

    /// The same for all processes of some instances.
    pub(super) fn known(
        &self,
        wanted: impl Fn(InstanceId) -> bool,
    ) -> BTreeMap<InstanceId, BTreeMap<i32, f64>> {
        self.evened_out(self.figures.keys().copied().filter(|(instance, _)| wanted(*instance)))
    }

    fn evened_out(
        &self,
        processes: impl Iterator<Item = Process>,
    ) -> BTreeMap<InstanceId, BTreeMap<i32, f64>> {
        let known =
            processes.filter_map(|process| Some((process, self.figures.get(&process)?.value()?)));
        let mut by_instance: BTreeMap<InstanceId, BTreeMap<i32, f64>> = BTreeMap::new();
        for ((instance, pid), work) in even_out(&known.collect()) {
            by_instance.entry(instance).or_default().insert(pid, work);
        }
        by_instance
    }

    /// How figures came to be known, or why there are none, for the user; None while nothing can be said yet.
    pub(super) fn text(
        &self,
        figures: &BTreeMap<InstanceId, BTreeMap<i32, f64>>,
    ) -> Option<String> {
        let told = |(instance, of): (&InstanceId, &BTreeMap<i32, f64>)| {
            let figures = of.keys().filter_map(|pid| self.figures.get(&(*instance, *pid)));
            figures.map(Figure::told).max()
        };
        let told = figures.iter().filter_map(told).max();
        let mut works = figures.values().flat_map(BTreeMap::values);
        let differ = works.next().is_some_and(|first| works.any(|work| work != first));
        match (told, self.silence) {
            (Some(told), _) if differ => {
                Some(format!("learned over {told} checkpoints from who waited for whom"))
            }
            (Some(told), _) => Some(format!("alike, as {told} checkpoints have shown")),
            (None, Some(silence)) => Some(format!("counts as alike: {silence}")),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::cluster::image::{ImageFacts, ProcessFacts, Unit};

    const NODES: [&str; 2] = ["a", "b"];

    fn images(seconds: u64, computed: [f64; 4]) -> BTreeMap<InstanceId, ImageRecord> {
        images_of(seconds, computed, 1.0)
    }

    /// Two ranks on each of two nodes, below a daemon, after so many seconds; for such parts of them they computed, had so much of a
    /// CPU in these, and slept else.
    fn images_of(seconds: u64, computed: [f64; 4], got: f64) -> BTreeMap<InstanceId, ImageRecord> {
        let image = |index: usize| {
            let node: NodeName = NODES[index].parse().unwrap();
            let process = |pid: i32| ProcessFacts {
                pid,
                parent: if pid == 2 { 1 } else { 2 },
                name: String::new(),
                threads: 1,
                bytes: 1,
            };
            let effort = |pid: i32| {
                let part = if pid == 2 { 0.0 } else { computed[index * 2 + pid as usize - 3] };
                let ms = |part: f64| (seconds as f64 * 1e3 * part) as u64;
                let (user_ms, waited_ms) = (ms(part * got), ms(part * (1.0 - got)));
                (pid, Effort { user_ms, waited_ms, ..Effort::default() })
            };
            let unit = |pid: i32| Unit {
                pids: vec![pid],
                bytes: 1,
                load: u32::from(pid != 2),
                because: String::new(),
            };
            let facts = ImageFacts {
                root: None,
                processes: (2..5).map(process).collect(),
                units: (2..5).map(unit).collect(),
                requirements: Default::default(),
                at_stake: Vec::new(),
                digest: String::new(),
                efforts: Some(Efforts {
                    at_ms: seconds * 1000,
                    processes: (2..5).map(effort).collect(),
                    idle_permille: None,
                }),
            };
            ImageRecord {
                node: node.clone(),
                logical_node: node.clone(),
                holders: vec![node],
                speed_permille: 1000,
                facts,
            }
        };
        BTreeMap::from([(InstanceId(1), image(0)), (InstanceId(2), image(1))])
    }

    fn of(works: &Works, images: &BTreeMap<InstanceId, ImageRecord>) -> Vec<f64> {
        let found = works.of(images.iter().map(|(number, image)| (*number, image)));
        found.into_values().flat_map(BTreeMap::into_values).collect()
    }

    #[test]
    fn what_is_learned_goes_with_the_processes() {
        let mut works = Works::default();
        let parts = [0.25, 0.25, 0.5, 1.0];
        for checkpoint in 1..=3 {
            assert!(of(&works, &images(10, parts)).is_empty(), "{checkpoint}");
            works.see(&images(checkpoint * 10, parts));
        }
        assert_eq!(of(&works, &images(10, parts)), [0.5, 0.5, 1.0, 2.0]);
        // One node is lost; its ranks go on in an instance each.
        let part = |part| InstanceRecord {
            node: "a".parse().unwrap(),
            logical_node: "b".parse().unwrap(),
            root: false,
            origin: Origin::Image {
                instance: InstanceId(2),
                assignment: BTreeMap::from([(2, 0), (3, 0), (4, 1)]),
                part,
            },
            addresses: Vec::new(),
        };
        works.inherit(&BTreeMap::from([(InstanceId(3), part(0)), (InstanceId(4), part(1))]));
        works.retain(|instance| instance != InstanceId(2));
        let known = |number: u32, pid: i32| works.figures.get(&(InstanceId(number), pid));
        assert_eq!(known(3, 3).and_then(Figure::value), Some(1.0));
        assert_eq!(known(4, 4).and_then(Figure::value), Some(2.0));
        assert!(known(3, 4).is_none() && known(2, 4).is_none());
        let told = works.text(&works.of(images(10, parts).iter().map(|(n, i)| (*n, i))));
        assert!(
            told.is_some_and(|text| text.contains("over 2 checkpoints") || text.contains("alike"))
        );
    }

    #[test]
    fn an_interval_in_which_a_process_came_tells_nothing() {
        let parts = [0.25, 0.25, 0.5, 1.0];
        let mut works = Works::default();
        works.see(&images(10, parts));
        let mut without = images(20, parts);
        let efforts =
            without.get_mut(&InstanceId(2)).and_then(|image| image.facts.efforts.as_mut());
        efforts.unwrap().processes.remove(&4);
        works.see(&without);
        works.see(&images(30, parts));
        assert!(works.figures.is_empty());
        works.see(&images(40, parts));
        assert_eq!(works.figures.len(), 4);
        // Little by little it becomes enough.
        let mut works = Works::default();
        let told: Vec<usize> = (1..7)
            .map(|checkpoint| {
                works.see(&images_of(checkpoint, parts, 0.04));
                works.figures.len()
            })
            .collect();
        assert_eq!(told, [0, 0, 0, 4, 4, 4]);
        // Each computes for itself.
        let mut works = Works::default();
        (1..9).for_each(|checkpoint| works.see(&images(checkpoint * 10, [1.0, 0.9, 1.0, 1.0])));
        assert!(works.figures.is_empty());
        let text = works.text(&BTreeMap::new()).unwrap();
        assert_eq!(text, "counts as alike: nobody waited for anybody");
    }
}
