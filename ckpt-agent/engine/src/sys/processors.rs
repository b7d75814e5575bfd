//! How many processors the kernel reckons with.

/// Processors that this machine may ever have; `None` where it does not say.
pub fn possible() -> Option<u32> {
    count(&std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?)
}

/// Numbers in a list of ranges: `0-3,8`.
fn count(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted() {
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0,2-4,7"), Some(5));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
        assert_eq!(count("0-4294967295"), None);
        assert!(possible().is_none_or(|count| count > 0));
    }
}
