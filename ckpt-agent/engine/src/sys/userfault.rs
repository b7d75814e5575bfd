//! userfaultfd(2) (include/uapi/linux/userfaultfd.h).

/// UFFD_USER_MODE_ONLY, since Linux 5.11
pub const USER_MODE_ONLY: i32 = 1;
/// UFFDIO_API: _IOWR(0xAA, 0x3F, struct uffdio_api)
pub const HANDSHAKE: u64 = 0xc018_aa3f;
/// UFFDIO_REGISTER: _IOWR(0xAA, 0x00, struct uffdio_register)
pub const WATCH: u64 = 0xc020_aa00;
/// UFFD_API
pub const VERSION: u64 = 0xaa;
/// UFFDIO_REGISTER_MODE_MISSING
pub const MISSING: u64 = 1;
/// UFFD_FEATURE_EVENT_FORK: a fork waits until its message is read.
pub const TELLS_FORKS: u64 = 1 << 1;
/// Of the kernel's own among the features: the handshake is over (fs/userfaultfd.c, UFFD_FEATURE_INITIALIZED).
pub const IS_READY: u64 = 1 << 31;
