//! /proc/PID/maps and the VmFlags of /proc/PID/smaps (proc_pid_maps(5), proc_pid_smaps(5)).

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use super::super::error::{EngineError, Result};
use super::super::graph::{MemoryPolicy, Protection};
use super::super::names;
use super::super::sys::stat::{device, major};
use super::read_names;

/// Trampolines of signal handlers, which 32-bit ARM has beside its vdso.
const SIGNAL_PAGE: &str = "[sigpage]";

/// One line of maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// PROT_* bits.
    pub protection: Protection,
    /// MAP_SHARED.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device of the file, as `makedev` packs it; 0: none.
    pub device: u64,
    /// Inode of the file; 0: none.
    pub inode: u64,
    /// Path or name in brackets, with line feeds put back, which the kernel writes as "\012".
    pub name: String,
    /// What the program calls this anonymous memory (PR_SET_VMA_ANON_NAME); most often nothing.
    pub given: String,
    /// Two-letter flags, only from smaps.
    pub flags: Vec<[u8; 2]>,
    /// Bytes of its pages, only from smaps; 0: not told.
    pub page_size: u64,
    /// Protection key (pkeys(7)), only from smaps; 0: none.
    pub key: u8,
    /// Memory policy of its own (mbind(2)), only from numa_maps.
    pub policy: Option<MemoryPolicy>,
}

/// What the kernel calls anonymous memory that is shared.
const SHARED_MEMORY: &str = "/dev/zero (deleted)";

impl Mapping {
    /// Private memory without a file.
    pub fn anonymous(start: u64, end: u64, protection: Protection) -> Self {
        Self {
            start,
            end,
            protection,
            shared: false,
            offset: 0,
            device: 0,
            inode: 0,
            name: String::new(),
            given: String::new(),
            flags: Vec::new(),
            page_size: 0,
            key: 0,
            policy: None,
        }
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }

    /// A mapping of the kernel's own that moves but is not dumped.
    pub fn is_kernel(&self) -> bool {
        self.name.starts_with("[v") || self.name == SIGNAL_PAGE
    }

    /// At an address that no process can map: [vsyscall], and [vectors] of 32-bit ARM.
    pub fn is_above_user_space(&self) -> bool {
        matches!(self.name.as_str(), "[vsyscall]" | "[vectors]")
    }

    /// Attached by shmat(2): the kernel names it after the segment's key, and gives the segment's number
    /// for an inode (newseg() in ipc/shm.c).
    pub fn is_segment(&self) -> bool {
        let key = self.name.strip_prefix("/SYSV").and_then(|name| name.strip_suffix(" (deleted)"));
        self.shared
            && major(self.device) == 0
            && key.is_some_and(|key| {
                key.len() == 8 && key.bytes().all(|digit| digit.is_ascii_hexdigit())
            })
    }

    /// Memory of an io_uring, of which each has an inode of its own (io_uring/io_uring.c, io_uring_get_file).
    pub fn is_ring(&self) -> bool {
        self.shared && self.name == "anon_inode:[io_uring]"
    }

    /// The ring of a context of asynchronous input and output (fs/aio.c, aio_private_file), which has an inode of its own.
    pub fn is_aio(&self) -> bool {
        self.shared && major(self.device) == 0 && self.path() == ("/[aio]", true)
    }

    /// Memory of MAP_HUGETLB that is no file's, as the kernel names it (fs/hugetlbfs/inode.c, HUGETLB_ANON_FILE).
    pub fn is_anonymous_huge(&self) -> bool {
        major(self.device) == 0 && self.path() == ("/anon_hugepage", true)
    }

    /// Whether smaps names this flag.
    pub fn has(&self, flag: &[u8; 2]) -> bool {
        self.flags.contains(flag)
    }

    /// Path without the kernel's mark of an unlinked file, and whether the mark was there.
    pub fn path(&self) -> (&str, bool) {
        match self.name.strip_suffix(" (deleted)") {
            Some(path) => (path, true),
            None => (&self.name, false),
        }
    }
}

/// The kernel's name of a mapping and the program's: the one stands instead of the other (fs/proc/task_mmu.c,
/// get_vma_name).
fn names(told: String) -> (String, String) {
    let given = |prefix: &str| {
        let name = told.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(']'));
        name.map(str::to_owned)
    };
    match (given("[anon:"), given("[anon_shmem:")) {
        (Some(name), _) => (String::new(), name),
        (_, Some(name)) => (SHARED_MEMORY.to_owned(), name),
        _ => (told, String::new()),
    }
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?.as_bytes();
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let major = u32::from_str_radix(major, 16).ok()?;
    let minor = u32::from_str_radix(minor, 16).ok()?;
    let inode = words.next()?.parse().ok()?;
    let name = words.next().unwrap_or("").trim_start().replace("\\012", "\n");
    let mut protection = 0;
    for (index, (letter, bit)) in
        [(b'r', Protection::READ), (b'w', Protection::WRITE), (b'x', Protection::EXEC)]
            .into_iter()
            .enumerate()
    {
        if *permissions.get(index)? == letter {
            protection |= bit;
        }
    }
    let (name, given) = names(name);
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        protection: Protection(protection),
        shared: *permissions.get(3)? == b's',
        offset,
        device: device(major, minor),
        inode,
        name,
        given,
        flags: Vec::new(),
        page_size: 0,
        key: 0,
        policy: None,
    })
}

/// Names that were looked up: of a device, an inode and the name that maps shows.
type LookedUp = HashMap<(u64, u64, String), String>;

/// A line of a process's maps, with the name that its file has.
fn parse(pid: i32, line: &str, known: &mut LookedUp) -> Option<Mapping> {
    let mut mapping = parse_line(line)?;
    // What is deleted is found by no name.
    if mapping.name.starts_with('/') && mapping.name.contains('\n') && !mapping.path().1 {
        let key = (mapping.device, mapping.inode, mapping.name.clone());
        let found =
            known.entry(key).or_insert_with(|| name_of_file(pid, mapping.inode, mapping.name));
        mapping.name = found.clone();
    }
    Some(mapping)
}

/// The kernel escapes line feeds, but not backslashes: what looks like a line feed's escape may be in the name as it is. The
/// reading that leads to the file; the given one, which has line feeds alone, where none does: it is gone.
fn name_of_file(pid: i32, inode: u64, name: String) -> String {
    /// More than that are not told apart one by one.
    const MOST: usize = 8;
    let parts: Vec<&str> = name.split('\n').collect();
    let escapes = parts.len() - 1;
    let choices = if escapes <= MOST { 0..1u32 << escapes } else { 0..1 };
    let reading = |choice: u32| {
        let mut reading = String::new();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                let as_it_is = choice & 1 << (index - 1) != 0;
                reading.push_str(if as_it_is { "\\012" } else { "\n" });
            }
            reading.push_str(part);
        }
        reading
    };
    let is_it = |path: &String| {
        let seen = |at: &str| {
            std::fs::symlink_metadata(names::path(at)).is_ok_and(|found| found.ino() == inode)
        };
        seen(&format!("/proc/{pid}/root{path}")) || seen(path)
    };
    choices.map(reading).find(is_it).unwrap_or(name)
}

/// The mappings of a process (number on this machine), ascending.
///
/// # Errors
/// [`EngineError::Gone`]; lines that are not understood.
pub fn read_maps(pid: i32) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/maps");
    let text = read_names(&path)?.ok_or(EngineError::Gone(pid))?;
    let mut known = LookedUp::new();
    let mut parsed =
        |line| parse(pid, line, &mut known).ok_or_else(|| EngineError::odd(&path, line));
    text.lines().map(&mut parsed).collect()
}

/// The one of these mappings, which are ascending, within which a range lies. There may be tens of thousands.
pub fn around(mappings: &[Mapping], start: u64, end: u64) -> Option<&Mapping> {
    let above = mappings.partition_point(|mapping| mapping.start <= start);
    mappings[..above].last().filter(|mapping| end <= mapping.end)
}

/// The mappings with their flags. Walks the page tables: about 15 ms a GiB.
///
/// # Errors
/// As [`read_maps`].
pub fn read_smaps(pid: i32) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/smaps");
    let text = read_names(&path)?.ok_or(EngineError::Gone(pid))?;
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut known = LookedUp::new();
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if let Some(last) = mappings.last_mut() {
                last.flags = flags
                    .split_ascii_whitespace()
                    .filter_map(|flag| flag.as_bytes().try_into().ok())
                    .collect();
            }
        } else if let Some(size) = line.strip_prefix("KernelPageSize:") {
            let size = size.trim().strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok());
            if let (Some(last), Some(kib)) = (mappings.last_mut(), size) {
                last.page_size = kib.saturating_mul(1024);
            }
        } else if let Some(key) = line.strip_prefix("ProtectionKey:") {
            if let Some(last) = mappings.last_mut() {
                last.key = key.trim().parse().unwrap_or(0);
            }
        } else if line.as_bytes().first().is_some_and(u8::is_ascii_hexdigit)
            && !line.as_bytes()[0].is_ascii_uppercase()
        {
            mappings
                .push(parse(pid, line, &mut known).ok_or_else(|| EngineError::odd(&path, line))?);
        }
    }
    Ok(mappings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own() {
        let pid = std::process::id() as i32;
        let smaps = read_smaps(pid).unwrap();
        assert!(smaps.iter().all(|mapping| mapping.start < mapping.end));
        let page = crate::sys::page::page_size();
        assert!(smaps.iter().any(|mapping| mapping.page_size == page));
        assert!(smaps.iter().any(|mapping| mapping.name == "[stack]" && mapping.has(b"gd")));
        assert!(read_maps(pid).unwrap().iter().any(|mapping| mapping.name == "[vdso]"));
    }

    #[test]
    fn finds_what_lies_around() {
        let mappings: Vec<Mapping> = ["1000-3000", "3000-4000", "6000-8000"]
            .map(|range| parse_line(&format!("{range} rw-p 00000000 00:00 0 ")).unwrap())
            .into();
        let start = |start, end| around(&mappings, start, end).map(|found| found.start);
        assert_eq!(start(0x1000, 0x3000), Some(0x1000));
        assert_eq!(start(0x2000, 0x3000), Some(0x1000));
        assert_eq!(start(0x3000, 0x4000), Some(0x3000));
        assert_eq!(start(0x7000, 0x8000), Some(0x6000));
        for (first, last) in [(0, 0x1000), (0x2000, 0x4000), (0x5000, 0x7000), (0x8000, 0x9000)] {
            assert_eq!(start(first, last), None);
        }
        assert!(around(&[], 0x1000, 0x2000).is_none());
    }

    #[test]
    fn tells_segments_from_files() {
        let mapping = |line: &str| parse_line(line).unwrap();
        let line = "7f0000000000-7f0000001000 rw-s 00000000 00:01 32769                      /SYSV0000002a (deleted)";
        assert!(mapping(line).is_segment());
        let line = "7f0000000000-7f0000001000 rw-s 00000000 fe:01 32769                      /SYSV0000002a (deleted)";
        assert!(!mapping(line).is_segment());
        let line = "7f0000000000-7f0000001000 rw-s 00000000 00:01 32769                      /SYSVolume (deleted)";
        assert!(!mapping(line).is_segment());
    }

    #[test]
    fn tells_names_that_programs_give() {
        let mapping = |line: &str| parse_line(line).unwrap();
        let line = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [anon:my heap]";
        let private = mapping(line);
        assert_eq!((private.name.as_str(), private.given.as_str()), ("", "my heap"));
        let line = "7f0000000000-7f0000001000 rw-s 00000000 00:01 42                         [anon_shmem:ring]";
        let shared = mapping(line);
        assert_eq!(shared.path(), ("/dev/zero", true));
        assert_eq!(shared.given, "ring");
        let line =
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [heap]";
        assert_eq!(mapping(line).name, "[heap]");
    }

    #[test]
    fn tells_a_backslash_from_a_line_feed() {
        let folder = std::env::temp_dir().join(format!("maps-{}-a\nb", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("c\\012d");
        std::fs::write(&path, "").unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        let path = path.to_str().unwrap().to_owned();
        let pid = std::process::id() as i32;
        let shown = path.replace("\\012", "\n");
        assert_eq!(name_of_file(pid, inode, shown.clone()), path);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(name_of_file(pid, inode, shown.clone()), shown);
    }

    #[test]
    fn reads_an_odd_name() {
        let line = "7f0000000000-7f0000001000 rw-s 00002000 fe:01 42                         /tmp/a b\\012c (deleted)";
        let mapping = parse_line(line).unwrap();
        assert_eq!(mapping.path(), ("/tmp/a b\nc", true));
        assert_eq!((mapping.offset, mapping.inode, mapping.shared), (0x2000, 42, true));
        assert_eq!(mapping.protection, Protection(3));
        assert_eq!(mapping.device, device(0xfe, 1));
    }
}
