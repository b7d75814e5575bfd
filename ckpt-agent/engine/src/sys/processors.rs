//! How many processors the kernel reckons with.

use std::ops::RangeInclusive;

/// Processors that this machine may ever have; `None` where it does not say.
pub fn possible() -> Option<u32> {
    count(&ranges(&told("possible")?)?)
}

/// Numbers of the processors on which any program may have run: those that are not set apart (isolcpus) for somebody who may
/// never let go of them. Empty where the machine does not say.
pub fn for_all() -> Vec<u32> {
    let list = |name| told(name).and_then(|list| ranges(&list)).unwrap_or_default();
    let apart = list("isolated");
    let is_apart = |number: &u32| apart.iter().any(|range| range.contains(number));
    list("possible").into_iter().flatten().take(MOST).filter(|number| !is_apart(number)).collect()
}

/// No kernel has more (CONFIG_NR_CPUS).
const MOST: usize = 8192;

fn told(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).ok()
}

/// A list of ranges: `0-3,8`.
fn ranges(list: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let range = |range: &str| -> Option<RangeInclusive<u32>> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(first..=last)
    };
    let list = list.trim();
    if list.is_empty() { Some(Vec::new()) } else { list.split(',').map(range).collect() }
}

fn count(ranges: &[RangeInclusive<u32>]) -> Option<u32> {
    let sizes = ranges.iter().map(|range| (range.end() - range.start()).checked_add(1));
    let sum = sizes.reduce(|sum, size| sum?.checked_add(size?)).flatten();
    sum.filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted() {
        let count = |list| ranges(list).and_then(|ranges| super::count(&ranges));
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0,2-4,7"), Some(5));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
        assert_eq!(count("0-4294967295"), None);
        assert!(possible().is_none_or(|count| count as usize >= for_all().len()));
    }
}
