//! What stat(2) tells and futimens(2) takes, in integers of the same width on every machine.
#![allow(
    clippy::unnecessary_cast,
    clippy::useless_conversion,
    reason = "these types have 32 bits for some machines"
)]

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use nix::sys::stat::FileStat;
use nix::sys::statfs::Statfs;
use nix::sys::time::TimeSpec;

const SECOND: i64 = 1_000_000_000;

/// Device and number of an inode.
pub fn identity(stat: &FileStat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Whether two are of one inode.
pub fn is_same_file(one: &FileStat, other: &FileStat) -> bool {
    identity(one) == identity(other)
}

/// Major number of a device.
pub fn major(device: u64) -> u32 {
    // Linux's device numbers fit into the 32 bits that bionic's dev_t has where words have 32.
    libc::major(device as libc::dev_t) as u32
}

/// The type of a file system, which is a signed word on some machines.
pub fn file_system(found: &Statfs) -> u64 {
    found.filesystem_type().0 as u64 & 0xffff_ffff
}

/// Minor number of a device.
pub fn minor(device: u64) -> u32 {
    libc::minor(device as libc::dev_t) as u32
}

/// The device of these numbers.
pub fn device(major: u32, minor: u32) -> u64 {
    libc::makedev(major as _, minor as _) as u64
}

/// Bytes of a file; 0 where the kernel tells less than none.
pub fn size(stat: &FileStat) -> u64 {
    (stat.st_size as i64).max(0) as u64
}

/// Names of an inode.
pub fn links(stat: &FileStat) -> u64 {
    stat.st_nlink as u64
}

/// When the content was changed, in nanoseconds since 1970.
pub fn modified_ns(stat: &FileStat) -> i64 {
    let second = i64::from(stat.st_mtime).saturating_mul(SECOND);
    second.saturating_add(i64::from(stat.st_mtime_nsec as i32))
}

/// The same, as the standard library tells it.
pub fn modified_ns_of(metadata: &Metadata) -> i64 {
    metadata.mtime().saturating_mul(SECOND).saturating_add(metadata.mtime_nsec())
}

/// When the content was last read, in nanoseconds since 1970.
pub fn accessed_ns(stat: &FileStat) -> i64 {
    let second = i64::from(stat.st_atime).saturating_mul(SECOND);
    second.saturating_add(i64::from(stat.st_atime_nsec as i32))
}

/// When the inode was changed, in nanoseconds since 1970: nobody can set that.
pub fn changed_ns(stat: &FileStat) -> i64 {
    let second = i64::from(stat.st_ctime).saturating_mul(SECOND);
    second.saturating_add(i64::from(stat.st_ctime_nsec as i32))
}

/// The same, as the standard library tells it.
pub fn changed_ns_of(metadata: &Metadata) -> i64 {
    metadata.ctime().saturating_mul(SECOND).saturating_add(metadata.ctime_nsec())
}

/// That many nanoseconds; what this machine's type cannot hold becomes the last that it can.
pub fn time(nanoseconds: i64) -> TimeSpec {
    let seconds = nanoseconds.div_euclid(SECOND);
    TimeSpec::new(
        seconds.try_into().unwrap_or_else(|_| i32::MAX.into()),
        (nanoseconds.rem_euclid(SECOND) as i32).into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for wanted in [1_700_000_000_123_456_789, 1, 0] {
            nix::sys::stat::futimens(&file, &time(wanted), &time(wanted)).unwrap();
            let stat = nix::sys::stat::fstat(&file).unwrap();
            assert_eq!(modified_ns(&stat), wanted);
            assert_eq!(modified_ns_of(&file.as_file().metadata().unwrap()), wanted);
        }
    }
}
