//! Room on a disk.

use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Bytes that are free for everybody where a folder is.
///
/// # Errors
/// As statvfs(3).
pub fn free_bytes(folder: &Path) -> nix::Result<u64> {
    let space = statvfs(folder)?;
    // On 32-bit machines these are shorter.
    #[allow(clippy::useless_conversion)]
    Ok(u64::from(space.blocks_available()).saturating_mul(u64::from(space.fragment_size())))
}
