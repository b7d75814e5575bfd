//! Network interfaces by name and by number: the number is another one after a reboot, or on another machine.

use std::io;

use nix::net::if_::if_nametoindex;

/// IFNAMSIZ (include/uapi/linux/if.h).
const NAMESIZE: usize = 16;

/// The interface's name.
pub fn name(index: u32) -> Option<String> {
    let mut name = [0u8; NAMESIZE];
    // SAFETY: the buffer has the IFNAMSIZ bytes that the call may write.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    let bytes = name.split(|&byte| byte == 0).next()?;
    String::from_utf8(bytes.to_vec()).ok()
}

/// The interface's number.
///
/// # Errors
/// ENODEV: there is none of that name.
pub fn index(name: &str) -> io::Result<u32> {
    if_nametoindex(name).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    #[test]
    fn loopback_has_both() {
        let index = super::index("lo").unwrap();
        assert_eq!(super::name(index).as_deref(), Some("lo"));
        assert!(super::index("no-such-one").is_err() && super::name(u32::MAX / 2).is_none());
    }
}
