//! What a process was before its restart, where the kernel can't be told.
//!
//! Without PR_SET_MM_MAP, /proc goes on to show ckptd's own executable, arguments and limits of the heap for a restored process.
//! The next checkpoint must not believe that. So the process is given one more private mapping, in which it is written what is
//! true: its children inherit that like everything else that is wrong about them, and execve(2) ends both. It is no part of
//! images.

use std::io::Write;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::graph::ProcessImage;
use super::super::proc::Mapping;
use super::super::sys::memfd;
use super::super::trace::ProcessMemory;

/// The name of the mapping's file.
const NAME: &std::ffi::CStr = c"ckptd-identity";
/// As maps show it.
const SHOWN: &str = "/memfd:ckptd-identity (deleted)";
/// No auxiliary vector and no path are longer together. Who has written to the mapping is not believed beyond.
const LONGEST: u64 = 64 * 1024;
/// Where the heap begins, and where it ends, among the fields of struct prctl_mm_map.
const START_BRK: usize = 4;
const BRK: usize = 5;

/// What is true of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Path of the executable.
    pub executable: String,
    /// PR_SET_MM fields, in the order of struct prctl_mm_map.
    pub memory_map: [u64; 11],
    /// Auxiliary vector, hex.
    pub auxv: String,
}

impl Identity {
    /// That of a process in an image.
    pub fn of(image: &ProcessImage) -> Self {
        let (memory_map, auxv) = (image.memory_map, image.auxv.clone());
        Self { executable: image.executable.path.clone(), memory_map, auxv }
    }

    /// A file to map it from, and its length.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn file(&self) -> Result<(OwnedFd, u64)> {
        let failed = |error: std::io::Error| EngineError::system("memfd_create", "identity", error);
        let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        let fd = memfd::make(NAME, libc::MFD_CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let mut file = std::fs::File::from(fd);
        file.write_all(&text).map_err(failed)?;
        Ok((file.into(), text.len() as u64))
    }

    /// The one that a process was given, out of one of its mappings. `None`: that is another one.
    ///
    /// # Errors
    /// Where the process has overwritten it.
    pub fn read(host_pid: i32, mapping: &Mapping) -> Result<Option<Self>> {
        if mapping.shared || mapping.name != SHOWN {
            return Ok(None);
        }
        let odd = |what: String| EngineError::odd(SHOWN, what);
        if mapping.length() > LONGEST {
            return Err(odd(format!("{} bytes", mapping.length())));
        }
        let mut text = vec![0; mapping.length() as usize];
        ProcessMemory::of(host_pid).read(mapping.start, &mut text)?;
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        protocol::json::read(&text[..end]).map(Some).map_err(|error| odd(error.to_string()))
    }

    /// The fields, when the kernel says that the heap ends there. Where it could not be put into its place it has stayed
    /// as it was.
    pub fn memory_map(&self, break_address: u64) -> [u64; 11] {
        let mut map = self.memory_map;
        if break_address >= map[START_BRK] {
            map[BRK] = break_address;
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::read_maps;

    #[test]
    fn a_process_tells_it_from_within() {
        let memory_map = [1, 2, 3, 4, 0x1000, 0x3000, 7, 8, 9, 10, 11];
        let own = Identity { executable: "/bin/true".into(), memory_map, auxv: "00ff".into() };
        let (fd, length) = own.file().unwrap();
        let pid = std::process::id() as i32;
        // SAFETY: a fresh private mapping at a place of the kernel's choice.
        let at = unsafe {
            use std::os::fd::AsRawFd;
            let (length, flags) = (length as usize, libc::MAP_PRIVATE);
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, flags, fd.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        let maps = read_maps(pid).unwrap();
        let found: Vec<_> =
            maps.iter().filter_map(|mapping| Identity::read(pid, mapping).unwrap()).collect();
        assert_eq!(found, std::slice::from_ref(&own));
        assert_eq!(own.memory_map(0x5000)[BRK], 0x5000);
        assert_eq!(own.memory_map(0xfff)[BRK], 0x3000);
    }
}
