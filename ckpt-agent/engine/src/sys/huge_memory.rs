//! Files in memory of huge pages (memfd_create(2), MFD_HUGETLB), and how memory of theirs is told from other memory: all that has
//! no file system of its own lies in one that the kernel has mounted for each size of page (fs/hugetlbfs/inode.c,
//! init_hugetlbfs_fs).

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::stat::fstat;
use nix::sys::statfs::fstatfs;

use super::memfd;
use super::stat::file_system;

/// include/uapi/linux/magic.h
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
/// include/uapi/linux/memfd.h
const MFD_HUGETLB: libc::c_uint = 4;
/// Where the size of a page stands in the flags, as the logarithm of its bytes.
const MFD_HUGE_SHIFT: u32 = 26;
/// Logarithms of the sizes that any processor has: 64 KiB to 16 GiB.
const SIZES: std::ops::RangeInclusive<u32> = 16..=34;

/// Bytes of a page of what lies on a device; `None`: these are ordinary ones, or a file system's that somebody has mounted.
pub fn page_on(device: u64) -> Option<u64> {
    static DEVICES: OnceLock<Vec<(u64, u64)>> = OnceLock::new();
    let devices = DEVICES.get_or_init(|| {
        let pages = SIZES.map(|size| 1u64 << size);
        let device = |page| {
            // It takes no page until somebody maps it.
            let probe = make(c"ckptd-probe", 0, page).ok()?;
            Some((fstat(&probe).ok()?.st_dev, page))
        };
        pages.filter_map(device).collect()
    });
    devices.iter().find(|(known, _)| *known == device).map(|(_, page)| *page)
}

/// Bytes of a page of a file of hugetlbfs, whoever has mounted that; `None`: it is another file.
pub fn page_of(file: impl AsFd) -> Option<u64> {
    let found = fstatfs(file).ok()?;
    (file_system(&found) == HUGETLBFS_MAGIC).then(|| found.block_size() as u64)
}

/// Makes an empty file of pages of so many bytes, a power of two. `flags`: further MFD_* bits.
///
/// # Errors
/// As memfd_create(2): ENODEV where this machine has no such pages.
pub fn make(name: &CStr, flags: u32, page: u64) -> nix::Result<OwnedFd> {
    memfd::make(name, flags | MFD_HUGETLB | page.trailing_zeros() << MFD_HUGE_SHIFT)
}

/// All of such a file, mapped for writing. As long as the file is there, its pages are reserved for it.
#[derive(Debug)]
pub struct Whole<'f> {
    file: BorrowedFd<'f>,
    at: *mut libc::c_void,
    length: usize,
}

impl<'f> Whole<'f> {
    /// Maps a file, of whole pages.
    ///
    /// # Errors
    /// ENOMEM where there are not enough pages.
    pub fn of(file: &'f OwnedFd, length: usize) -> nix::Result<Self> {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let (file, nowhere) = (file.as_fd(), std::ptr::null_mut());
        // SAFETY: a fresh mapping at a place of the kernel's choice.
        let at =
            unsafe { libc::mmap(nowhere, length, both, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(Self { file, at, length }) }
    }

    /// Where its first byte is.
    pub fn start(&self) -> u64 {
        self.at as usize as u64
    }

    /// Gives a part of it its pages: who touches one that is lacking dies.
    ///
    /// # Errors
    /// As fallocate(2), where a limit of the cgroup forbids them.
    pub fn populate(&self, offset: u64, length: u64) -> nix::Result<()> {
        let number = |value| libc::off_t::try_from(value).map_err(|_| Errno::EFBIG);
        fallocate(self.file, FallocateFlags::empty(), number(offset)?, number(length)?)
    }
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `of`, to which no reference was ever made.
        unsafe { libc::munmap(self.at, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_huge_memory_is_on_its_device() {
        let ordinary = memfd::make(c"ordinary", 0).unwrap();
        assert_eq!(page_on(fstat(&ordinary).unwrap().st_dev), None);
        assert_eq!(page_of(&ordinary), None);
        let page = 2 << 20;
        // A kernel without such pages has no device, either.
        if let Ok(huge) = make(c"huge", 0, page) {
            assert_eq!(page_on(fstat(&huge).unwrap().st_dev), Some(page));
            assert_eq!(page_of(&huge), Some(page));
        }
    }
}
