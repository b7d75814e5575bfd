//! What a process shows of itself in /proc, and where its heap ends: as the image has it, as far as the kernel lets us.

use super::super::arch::words::{WORD, to_words};
use super::super::error::{EngineError, Result};
use super::super::graph::{ProcessImage, from_hex};
use super::super::proc::read_text;
use super::super::sys::memory_map::Means;
use super::super::trace::{Batch, Remote};
use super::mapped::{GONE, MappedFiles};

/// PR_SET_MM_AUXV, PR_SET_MM_EXE_FILE, PR_SET_MM_MAP
const SET_AUXV: u64 = 12;
const SET_EXECUTABLE: u64 = 13;
const SET_MAP: u64 = 14;
/// PR_SET_MM_* in the order of struct prctl_mm_map (prctl(2)).
const SET_FIELD: [u64; 11] = [1, 2, 3, 4, 6, 7, 5, 8, 9, 10, 11];
/// Fields that are a beginning and its end: the kernel wants them in order at any time.
const PAIRS: [(usize, usize); 5] = [(0, 1), (2, 3), (4, 5), (7, 8), (9, 10)];
/// Data and heap among them.
const DATA: usize = 1;
const HEAP: usize = 2;
/// Where the stack begins.
const START_STACK: usize = 6;
/// Where the heap begins, and where it ends.
const START_BRK: usize = 4;
const BRK: usize = 5;
/// In place of a descriptor: the program stays as it is.
const NO_FILE: i32 = -1;
/// How 64-bit integers lie in a structure.
const MAP_ALIGNMENT: usize = if cfg!(target_arch = "x86") { 4 } else { 8 };

/// The fields of struct prctl_mm_map out of /proc/PID/stat (proc(5)), but for the heap's end, which it does not have.
fn fields_of(host_pid: i32) -> Result<[u64; 11]> {
    let path = format!("/proc/{host_pid}/stat");
    let text = read_text(&path)?.ok_or(EngineError::Gone(host_pid))?;
    // Behind the name, which may have anything in it: field 3 and those that follow.
    let (_, rest) = text.rsplit_once(')').ok_or_else(|| EngineError::odd(&path, text.clone()))?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| {
        let word = words.get(number - 3).and_then(|word| word.parse().ok());
        word.ok_or_else(|| EngineError::odd(&path, format!("no field {number}")))
    };
    // start_code, end_code, start_data, end_data, start_brk, (brk), start_stack, arg_*, env_*.
    let mut fields = [0; 11];
    for (slot, number) in [(0, 26), (1, 27), (2, 45), (3, 46), (4, 47), (6, 28)] {
        fields[slot] = field(number)?;
    }
    for (slot, number) in [(7, 48), (8, 49), (9, 50), (10, 51)] {
        fields[slot] = field(number)?;
    }
    Ok(fields)
}

/// Where the stack of this process begins, and that of all processes that it has forked and that could not be told otherwise.
///
/// # Errors
/// An odd /proc.
pub fn own_stack() -> Result<u64> {
    fields_of(std::process::id() as i32).map(|fields| fields[START_STACK])
}

/// Where the heap of a process ends.
pub fn end_of_heap(image: &ProcessImage) -> u64 {
    image.memory_map[BRK]
}

/// Makes the heap of a helper empty, which never runs its own code again. Only while its memory is as it was: the
/// kernel shrinks no heap that is not mapped.
///
/// # Errors
/// [`EngineError::Unfit`] where the image's ends below: the kernel would tell a program that asks for more that it has got it.
pub fn empty_heap(remote: &mut Remote<'_>, image: &ProcessImage) -> Result<()> {
    let start = fields_of(remote.thread().tid())?[START_BRK];
    if end_of_heap(image) < start {
        return Err(EngineError::Unfit {
            what: format!(
                "the heap of process {} ends below that of ckptd, and this kernel has no PR_SET_MM_MAP to move it there",
                image.pid
            ),
            way_out: "restart it on a machine whose kernel has CONFIG_CHECKPOINT_RESTORE".into(),
        });
    }
    let now = remote.raw(libc::SYS_brk, &[start])? as u64;
    if now == start { Ok(()) } else { Err(EngineError::odd("brk", format!("{now:#x}"))) }
}

/// Moves the end of an empty heap to where the image has it, by calls of brk(2) alone: each moves it by a part, and what it
/// has mapped is unmapped again. To be called while nothing else is on the way. True if it is there.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn move_break(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    in_the_way: &[(u64, u64)],
    page: u64,
) -> Result<bool> {
    let wanted = end_of_heap(image);
    let now = remote.raw(libc::SYS_brk, &[0])? as u64;
    let end = wanted.next_multiple_of(page) + page;
    if in_the_way.iter().any(|(from, to)| *from < end && *to > now) {
        return Ok(false);
    }
    let answers = remote.run(&steps(now, wanted, part_of_memory(page), page))?;
    // The one before the last: a munmap follows each.
    let last = answers.len().checked_sub(2).and_then(|at| answers.get(at));
    Ok(last.is_none_or(|answer| *answer as u64 == wanted))
}

/// As much as the kernel lets a process take at once, when it does not count closely (vm.overcommit_memory=0).
fn part_of_memory(page: u64) -> u64 {
    // SAFETY: takes a number only.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    let bytes = u64::try_from(pages).unwrap_or(0).saturating_mul(page) / 4;
    bytes.max(64 << 20).next_multiple_of(page)
}

/// Calls that move it: brk and munmap by turns.
fn steps(now: u64, wanted: u64, part: u64, page: u64) -> Batch {
    let mut batch = Batch::new();
    let mut at = now;
    while at < wanted {
        let next = wanted.min(at.saturating_add(part));
        batch.add(libc::SYS_brk, &[next]);
        let (from, to) = (at.next_multiple_of(page), next.next_multiple_of(page));
        // With nothing to unmap the kernel answers EINVAL, which nobody looks at.
        batch.add(libc::SYS_munmap, &[from, to.saturating_sub(from)]);
        at = next;
    }
    batch
}

/// Sets what /proc shows.
///
/// # Errors
/// Failed calls.
pub fn set(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    files: &MappedFiles,
    at: u64,
) -> Result<()> {
    // One among other mounts is told once the process is there, which has the right to by then: another one can't take its
    // place while it is mapped.
    let executable = match image.executable_inside {
        Some(_) if files.means() == Means::Whole => NO_FILE,
        _ => files.executable(&image.executable.path),
    };
    set_with(remote, image, files.means(), at, executable)
}

/// Sets what /proc shows, with the number that the process has opened its program under, or -1.
///
/// # Errors
/// Failed calls.
pub fn set_with(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    means: Means,
    at: u64,
    executable: i32,
) -> Result<()> {
    let auxv = from_hex(&image.auxv)?;
    let auxv_at = at + 4096;
    remote.memory().write(auxv_at, &auxv)?;
    let auxv = (auxv_at, auxv.len() as u64);
    match means {
        Means::Whole => whole(remote, image, at, auxv, executable),
        Means::Fields => by_fields(remote, image, auxv, executable),
        Means::Nothing => Ok(()),
    }
}

fn whole(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    at: u64,
    (auxv_at, auxv_length): (u64, u64),
    executable: i32,
) -> Result<()> {
    // struct prctl_mm_map. Its pointer is the kernel's: 64 bits for a 32-bit process of a 64-bit kernel, too.
    let map = |pointer: &[u8], executable: i32| -> Vec<u8> {
        let mut map: Vec<u8> =
            image.memory_map.iter().flat_map(|word| word.to_ne_bytes()).collect();
        map.extend(pointer);
        map.extend((auxv_length as u32).to_ne_bytes());
        map.extend(executable.to_ne_bytes());
        map.resize(map.len().next_multiple_of(MAP_ALIGNMENT), 0);
        map
    };
    let mut set = |map: &[u8]| {
        remote.memory().write(at, map)?;
        let arguments = [libc::PR_SET_MM as u64, SET_MAP, at, map.len() as u64, 0];
        remote.call("PR_SET_MM_MAP", libc::SYS_prctl, &arguments)
    };
    match set(&map(&auxv_at.to_ne_bytes(), executable)) {
        // Naming another program takes CAP_CHECKPOINT_RESTORE over the user namespace; the rest does not. A deleted file
        // may be one that nobody may execute any more, or that is written to.
        Err(EngineError::System { source, .. })
            if (source.raw_os_error() == Some(libc::EPERM) || is_gone(image))
                && set(&map(&auxv_at.to_ne_bytes(), NO_FILE)).is_ok() =>
        {
            Ok(())
        }
        Err(_) if WORD < size_of::<u64>() => set(&map(&to_words(&[auxv_at]), executable)).map(drop),
        other => other.map(drop),
    }
}

/// Whether the program's file was deleted already.
fn is_gone(image: &ProcessImage) -> bool {
    image.executable.path.ends_with(GONE)
}

fn by_fields(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    (auxv_at, auxv_length): (u64, u64),
    executable: i32,
) -> Result<()> {
    let mut now = fields_of(remote.thread().tid())?;
    now[BRK] = remote.raw(libc::SYS_brk, &[0])? as u64;
    let mut set = |what: u64, value: u64, length: u64| {
        let arguments = [libc::PR_SET_MM as u64, what, value, length, 0];
        remote.call("PR_SET_MM", libc::SYS_prctl, &arguments).map(drop)
    };
    for field in order(&now, &image.memory_map) {
        set(SET_FIELD[field], image.memory_map[field], 0)?;
    }
    set(SET_AUXV, auxv_at, auxv_length)?;
    match u64::try_from(executable) {
        Ok(fd) => set(SET_EXECUTABLE, fd, 0).or_else(|error| match is_gone(image) {
            true => Ok(()),
            false => Err(error),
        }),
        // Its file is gone.
        Err(_) => Ok(()),
    }
}

/// The fields that differ, in an order in which no end is ever before its beginning.
fn order(now: &[u64; 11], wanted: &[u64; 11]) -> Vec<usize> {
    let mut order = vec![START_STACK];
    let mut pairs = PAIRS;
    if wanted[PAIRS[HEAP].0] >= now[PAIRS[HEAP].0] {
        // Before Linux 5.2 the heap had to be above the data at any time.
        pairs.swap(DATA, HEAP);
    }
    for (start, end) in pairs {
        // The other way round the kernel would see an empty or a negative range in between.
        let end_first = wanted[end] > now[start];
        order.extend(if end_first { [end, start] } else { [start, end] });
    }
    order.retain(|field| now[*field] != wanted[*field]);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_proc_has_them() {
        let own = fields_of(std::process::id() as i32).unwrap();
        for (start, end) in PAIRS {
            assert!(own[start] <= own[end] || end == BRK, "{own:x?}");
        }
        assert!(own[START_STACK] > 0x1000 && own[0] > 0);
        // The main thread's stack, which this test need not run on.
        assert_eq!(own_stack().unwrap(), own[START_STACK]);
    }

    #[test]
    fn no_end_is_before_its_beginning() {
        let at = |start: u64| [start, start + 9, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        for (from, to) in [(100, 200), (200, 100), (100, 104), (104, 100), (100, 109)] {
            let (mut now, wanted) = (at(from), at(to));
            for field in order(&now.clone(), &wanted) {
                now[field] = wanted[field];
                assert!(now[0] < now[1], "{from} to {to}");
            }
            assert_eq!(now, wanted);
        }
    }

    #[test]
    fn the_way_is_gone_in_parts() {
        let page = 0x1000;
        let calls = |now, wanted| {
            let batch = steps(now, wanted, 0x10000, page);
            let of = |call: &crate::arch::Call| (call.arguments[0], call.arguments[1]);
            batch.calls().iter().map(of).collect::<Vec<_>>()
        };
        let up = calls(0x1_0123, 0x3_0456);
        let expected = [
            (0x2_0123, 0),
            (0x1_1000, 0x1_0000),
            (0x3_0123, 0),
            (0x2_1000, 0x1_0000),
            (0x3_0456, 0),
            (0x3_1000, 0),
        ];
        assert_eq!(up, expected);
        assert!(calls(0x5000, 0x5000).is_empty());
    }
}
