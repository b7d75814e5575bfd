//! What a message says to many agents at once, or says of many: kept once in memory, and short when written.

use crate::agent::{CheckpointNumber, InstanceId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

/// Agents that a message may speak of: more than a cluster has nodes. Runs of numbers are read as far as this.
pub const MOST_AGENTS: usize = 1 << 16;

/// Agents, written as the runs of numbers that they are: `[1,[3,900]]` are 1 and 3 to 900.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSet(Arc<[InstanceId]>);

/// A number, or the first and the last of a run.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Run {
    One(u32),
    Many(u32, u32),
}

impl From<Vec<InstanceId>> for AgentSet {
    fn from(agents: Vec<InstanceId>) -> Self {
        Self(agents.into())
    }
}

impl FromIterator<InstanceId> for AgentSet {
    fn from_iter<I: IntoIterator<Item = InstanceId>>(agents: I) -> Self {
        Self(agents.into_iter().collect())
    }
}

impl Deref for AgentSet {
    type Target = [InstanceId];

    fn deref(&self) -> &[InstanceId] {
        &self.0
    }
}

impl Serialize for AgentSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let follows = |one: &InstanceId, next: &InstanceId| one.0.checked_add(1) == Some(next.0);
        serializer.collect_seq(self.0.chunk_by(follows).map(|run| match run {
            [one] => Run::One(one.0),
            [first, .., last] => Run::Many(first.0, last.0),
            [] => unreachable!("no run is empty"),
        }))
    }
}

impl<'de> Deserialize<'de> for AgentSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut agents = Vec::new();
        for run in Vec::<Run>::deserialize(deserializer)? {
            let (first, last) = match run {
                Run::One(one) => (one, one),
                Run::Many(first, last) => (first, last),
            };
            agents.extend(numbers::<D::Error>(first, last, agents.len())?.map(InstanceId));
        }
        Ok(Self(agents.into()))
    }
}

fn numbers<E: Error>(
    first: u32,
    last: u32,
    before: usize,
) -> Result<std::ops::RangeInclusive<u32>, E> {
    let count = (last as usize).checked_sub(first as usize).map(|more| more + 1);
    match count.and_then(|count| count.checked_add(before)) {
        Some(all) if all <= MOST_AGENTS => Ok(first..=last),
        Some(_) => Err(E::custom(format!("more than {MOST_AGENTS} agents"))),
        None => Err(E::custom(format!("{first} to {last} is no run of numbers"))),
    }
}

/// Checkpoints by agent, written as runs of agents that have the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptImages(Arc<BTreeMap<InstanceId, Vec<CheckpointNumber>>>);

impl From<BTreeMap<InstanceId, Vec<CheckpointNumber>>> for KeptImages {
    fn from(images: BTreeMap<InstanceId, Vec<CheckpointNumber>>) -> Self {
        Self(Arc::new(images))
    }
}

impl Deref for KeptImages {
    type Target = BTreeMap<InstanceId, Vec<CheckpointNumber>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Serialize for KeptImages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut runs: Vec<(u32, u32, &[CheckpointNumber])> = Vec::new();
        for (agent, checkpoints) in self.0.iter() {
            match runs.last_mut() {
                Some((_, last, known))
                    if last.checked_add(1) == Some(agent.0) && known == checkpoints =>
                {
                    *last = agent.0;
                }
                _ => runs.push((agent.0, agent.0, checkpoints)),
            }
        }
        serializer.collect_seq(runs)
    }
}

impl<'de> Deserialize<'de> for KeptImages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut images = BTreeMap::new();
        // Each number is written once for a run, and kept once for each of its agents.
        let mut kept = 0_usize;
        for (first, last, checkpoints) in
            Vec::<(u32, u32, Vec<CheckpointNumber>)>::deserialize(deserializer)?
        {
            for agent in numbers::<D::Error>(first, last, images.len())? {
                kept = kept.saturating_add(checkpoints.len());
                if kept > 16 * MOST_AGENTS {
                    return Err(D::Error::custom("too many images"));
                }
                images.insert(InstanceId(agent), checkpoints.clone());
            }
        }
        Ok(Self(Arc::new(images)))
    }
}

/// What is said to many in the same words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shared<T>(Arc<T>);

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

/// A list of many that changes a little at a time: in pieces, each of which is kept once, and written as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pieces<T>(Vec<Shared<Vec<T>>>);

impl<T> FromIterator<Shared<Vec<T>>> for Pieces<T> {
    fn from_iter<I: IntoIterator<Item = Shared<Vec<T>>>>(pieces: I) -> Self {
        Self(pieces.into_iter().collect())
    }
}

impl<T> From<Vec<T>> for Pieces<T> {
    fn from(all: Vec<T>) -> Self {
        Self(vec![all.into()])
    }
}

impl<T> Pieces<T> {
    /// All, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|piece| piece.iter())
    }
}

impl<T: Serialize> Serialize for Pieces<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pieces<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(numbers: &[u32]) -> Vec<InstanceId> {
        numbers.iter().copied().map(InstanceId).collect()
    }

    #[test]
    fn pieces_are_written_as_one_list() {
        let pieces: Pieces<u8> =
            [vec![1, 2], vec![], vec![3]].map(Shared::from).into_iter().collect();
        assert_eq!(serde_json::to_string(&pieces).unwrap(), "[1,2,3]");
        let back: Pieces<u8> = serde_json::from_str("[1,2,3]").unwrap();
        assert!(back.iter().eq(pieces.iter()));
    }

    #[test]
    fn runs_are_short_and_come_back() {
        for (numbers, text) in [
            (&[][..], "[]"),
            (&[7], "[7]"),
            (&[1, 3, 4, 5, 9, 10], "[1,[3,5],[9,10]]"),
            (&[u32::MAX, 0], "[4294967295,0]"),
        ] {
            let set = AgentSet::from(agents(numbers));
            assert_eq!(serde_json::to_string(&set).unwrap(), text);
            assert_eq!(serde_json::from_str::<AgentSet>(text).unwrap(), set);
        }
        let many: AgentSet = (1..=10_000).map(InstanceId).collect();
        assert_eq!(serde_json::to_string(&many).unwrap(), "[[1,10000]]");
        // As they were written once.
        let plain: AgentSet = serde_json::from_str("[1,2,3]").unwrap();
        assert_eq!(*plain, *agents(&[1, 2, 3]));
        for hostile in ["[[0,4294967295]]", "[[5,4]]", "[[0,60000],[0,60000]]", "[[1]]"] {
            serde_json::from_str::<AgentSet>(hostile).unwrap_err();
        }
    }

    #[test]
    fn images_that_are_kept_alike_are_one_run() {
        let images: BTreeMap<InstanceId, Vec<u64>> = (1..=1000)
            .map(|agent| (InstanceId(agent), vec![4, 5]))
            .chain([(InstanceId(1001), vec![5]), (InstanceId(2000), vec![5])])
            .collect();
        let kept = KeptImages::from(images);
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(text, "[[1,1000,[4,5]],[1001,1001,[5]],[2000,2000,[5]]]");
        assert_eq!(serde_json::from_str::<KeptImages>(&text).unwrap(), kept);
        let long = format!("[[0,60000,[{}]]]", vec!["1"; 100].join(","));
        serde_json::from_str::<KeptImages>(&long).unwrap_err();
    }
}
