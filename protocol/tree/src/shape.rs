//! Who calls whom: a binomial tree over an ordered list.

use protocol::cluster::tree::TreePlace;

/// What a member does with the places that it is called with: the first is its own; the others are the
/// subtrees that it is to call, in this order. None: there is not even a place of its own.
#[must_use]
pub fn split(mut places: Vec<TreePlace>) -> Option<(TreePlace, Vec<Vec<TreePlace>>)> {
    let mut subtrees = Vec::new();
    while places.len() > 1 {
        // The front half, rounded up, stays: as many hops as the back half needs are left for it.
        subtrees.push(places.split_off(places.len().div_ceil(2)));
    }
    Some((places.pop()?, subtrees))
}

/// The smallest number of hops in which `members` can be reached when in each hop everyone who has the
/// message passes it on once: `ceil(log2 members)`.
#[must_use]
pub fn hops(members: usize) -> u32 {
    members.max(1).next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::agent::InstanceId;

    fn places(count: usize) -> Vec<TreePlace> {
        (0..count)
            .map(|number| TreePlace {
                node: format!("n{number}").parse().unwrap(),
                instances: vec![InstanceId(number as u32)],
            })
            .collect()
    }

    #[test]
    fn every_place_belongs_to_one_subtree() {
        for count in 1..70 {
            let all = places(count);
            let (own, subtrees) = split(all.clone()).unwrap();
            assert_eq!(own, all[0]);
            let mut seen = vec![own];
            for subtree in subtrees.into_iter().rev() {
                seen.extend(subtree);
            }
            assert_eq!(seen, all);
        }
        assert_eq!(split(Vec::new()), None);
    }

    /// The n-th call of a member arrives n hops after it was called.
    #[test]
    fn no_member_is_further_than_the_logarithm() {
        let mut reached = vec![0, 0];
        for count in 2..=10_000_usize {
            let (mut left, mut call, mut last) = (count, 0, 0);
            while left > 1 {
                let kept = left.div_ceil(2);
                call += 1;
                last = last.max(call + reached[left - kept]);
                left = kept;
            }
            reached.push(last);
            assert_eq!(last, hops(count), "{count} members");
        }
        assert_eq!([hops(1), hops(2), hops(3), hops(10_000)], [0, 1, 2, 14]);
    }
}
