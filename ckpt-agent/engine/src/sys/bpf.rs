//! Maps of bpf(2) (include/uapi/linux/bpf.h), as far as they can be read and made again.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// BPF_MAP_CREATE
const CREATE: libc::c_long = 0;
/// BPF_MAP_LOOKUP_ELEM
const LOOK_UP: libc::c_long = 1;
/// BPF_MAP_UPDATE_ELEM
const UPDATE: libc::c_long = 2;
/// BPF_MAP_GET_NEXT_KEY
const NEXT_KEY: libc::c_long = 4;
/// BPF_PROG_GET_NEXT_ID
const NEXT_PROGRAM: libc::c_long = 11;
/// BPF_PROG_GET_FD_BY_ID
const OPEN_PROGRAM: libc::c_long = 13;
/// BPF_MAP_GET_FD_BY_ID
const OPEN_MAP: libc::c_long = 14;
/// BPF_OBJ_GET_INFO_BY_FD
const INFORM: libc::c_long = 15;
/// BPF_MAP_FREEZE, since Linux 5.2
const FREEZE: libc::c_long = 22;

/// Most maps of one program that are looked at.
const MOST_MAPS: usize = 4096;

/// What a map is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// BPF_MAP_TYPE_*
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Room for so many entries.
    pub max_entries: u32,
    /// BPF_F_*
    pub flags: u32,
    /// Its name, with zeros behind it.
    pub name: [u8; 16],
}

/// What the kernel tells of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// What it is.
    pub shape: Shape,
    /// Its number.
    pub id: u32,
    /// It has something that is not told in full: types (BTF), a device, a number more.
    pub has_more: bool,
}

/// The structures of bpf(2) are made of 32-bit words; what of them lies beyond is zeros to the kernel (kernel/bpf/syscall.c,
/// `__sys_bpf()`).
fn bpf(command: libc::c_long, attributes: &mut [u32]) -> io::Result<i32> {
    let (at, size) = (attributes.as_mut_ptr(), size_of_val(attributes));
    // SAFETY: the kernel reads the attributes, and writes within them at most; both last for the call. Addresses in them are of
    // buffers that the callers below hold until it returns, as large as the map's shape says.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, at, size) };
    match answer {
        0.. => Ok(answer as i32),
        _ => Err(io::Error::last_os_error()),
    }
}

fn descriptor(command: libc::c_long, attributes: &mut [u32]) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An address as two words.
fn address(of: *const u8) -> [u32; 2] {
    halves(of as usize as u64)
}

fn halves(whole: u64) -> [u32; 2] {
    let bytes = whole.to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
    [half(0), half(4)]
}

/// Asks for what a map or a program is, in words.
fn inform(of: impl AsFd, answer: &mut [u32]) -> io::Result<()> {
    let [low, high] = address(answer.as_mut_ptr().cast_const().cast());
    let fd = of.as_fd().as_raw_fd() as u32;
    bpf(INFORM, &mut [fd, size_of_val(answer) as u32, low, high]).map(drop)
}

/// What a map is.
///
/// # Errors
/// bpf(2)'s.
pub fn told(map: impl AsFd) -> io::Result<Told> {
    // struct bpf_map_info: kind, number, sizes, room, flags, name, device, and what has to do with types.
    let mut words = [0_u32; 22];
    inform(map, &mut words)?;
    let mut name = [0; 16];
    for (bytes, word) in name.chunks_exact_mut(4).zip(&words[6..10]) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let shape = Shape {
        kind: words[0],
        key_size: words[2],
        value_size: words[3],
        max_entries: words[4],
        flags: words[5],
        name,
    };
    Ok(Told { shape, id: words[1], has_more: words[10..].iter().any(|word| *word != 0) })
}

/// Opens a map by its number, which takes CAP_SYS_ADMIN. `flags`: BPF_F_RDONLY, BPF_F_WRONLY, or none.
///
/// # Errors
/// bpf(2)'s.
pub fn open(id: u32, flags: u32) -> io::Result<OwnedFd> {
    descriptor(OPEN_MAP, &mut [id, 0, flags])
}

/// Makes a map.
///
/// # Errors
/// bpf(2)'s.
pub fn make(shape: &Shape) -> io::Result<OwnedFd> {
    let mut words = [0; 11];
    let first = [shape.kind, shape.key_size, shape.value_size, shape.max_entries, shape.flags];
    words[..5].copy_from_slice(&first);
    for (word, bytes) in words[7..].iter_mut().zip(shape.name.chunks_exact(4)) {
        *word = u32::from_ne_bytes([0, 1, 2, 3].map(|at| bytes[at]));
    }
    descriptor(CREATE, &mut words)
}

/// All entries of a map, each a key and its value; `None`: there are more than `most`.
///
/// # Errors
/// bpf(2)'s.
pub fn entries(map: impl AsFd, shape: &Shape, most: usize) -> io::Result<Option<Vec<u8>>> {
    let fd = map.as_fd().as_raw_fd() as u32;
    let (key_size, value_size) = (shape.key_size as usize, shape.value_size as usize);
    let mut all = Vec::new();
    let mut key: Option<Vec<u8>> = None;
    for _ in 0..=most {
        let mut next = vec![0; key_size];
        let [low, high] = key.as_ref().map_or([0, 0], |key| address(key.as_ptr()));
        let [to_low, to_high] = address(next.as_mut_ptr());
        match bpf(NEXT_KEY, &mut [fd, 0, low, high, to_low, to_high]) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Some(all)),
            other => other?,
        };
        let mut value = vec![0; value_size];
        let [low, high] = address(next.as_ptr());
        let [to_low, to_high] = address(value.as_mut_ptr());
        bpf(LOOK_UP, &mut [fd, 0, low, high, to_low, to_high, 0, 0])?;
        all.extend_from_slice(&next);
        all.extend_from_slice(&value);
        key = Some(next);
    }
    Ok(None)
}

/// Puts an entry into a map, or changes it. Key and value must have the map's sizes.
///
/// # Errors
/// EINVAL for other sizes; else bpf(2)'s.
pub fn put(map: impl AsFd, shape: &Shape, key: &[u8], value: &[u8]) -> io::Result<()> {
    if (key.len(), value.len()) != (shape.key_size as usize, shape.value_size as usize) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let fd = map.as_fd().as_raw_fd() as u32;
    let ([low, high], [value_low, value_high]) = (address(key.as_ptr()), address(value.as_ptr()));
    bpf(UPDATE, &mut [fd, 0, low, high, value_low, value_high, 0, 0]).map(drop)
}

/// Has a map never be changed by bpf(2) again.
///
/// # Errors
/// bpf(2)'s.
pub fn freeze(map: impl AsFd) -> io::Result<()> {
    bpf(FREEZE, &mut [map.as_fd().as_raw_fd() as u32]).map(drop)
}

/// Whether any program in the kernel uses a map, which takes CAP_SYS_ADMIN to look at.
///
/// # Errors
/// bpf(2)'s.
pub fn is_used(id: u32) -> io::Result<bool> {
    let mut last = 0;
    loop {
        let mut attributes = [last, 0, 0];
        match bpf(NEXT_PROGRAM, &mut attributes) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
            other => other?,
        };
        last = attributes[1];
        let program = match descriptor(OPEN_PROGRAM, &mut [last, 0, 0]) {
            // It has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
            other => other?,
        };
        let mut maps = vec![0_u32; MOST_MAPS];
        // struct bpf_prog_info: how many maps it has, and where their numbers are to go.
        let mut words = [0_u32; 16];
        words[13] = MOST_MAPS as u32;
        [words[14], words[15]] = address(maps.as_mut_ptr().cast_const().cast());
        inform(&program, &mut words)?;
        let count = words[13] as usize;
        if count > MOST_MAPS || maps[..count].contains(&id) {
            return Ok(true);
        }
    }
}
