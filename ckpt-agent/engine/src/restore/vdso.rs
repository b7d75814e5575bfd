//! The vdso of another kernel.
//!
//! A process keeps addresses of functions in the vdso: its C library has looked them up, and its auxiliary vector says where
//! more can be found. Another kernel's vdso has them elsewhere, and one that was made for another processor differs, too (the
//! kernel patches it when it starts). The old one can't be used: it reads the kernel's data, which is laid out otherwise. So this
//! kernel's vdso stays where there is room, and the old one's bytes are put where they were, as ordinary memory, each of its
//! functions beginning with a jump to this kernel's of the same name. The next restart finds two, and so on: each jumps to
//! the one after it.

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use super::super::arch::{Architecture, Current, calls as numbers};
use super::super::error::{EngineError, Result};
use super::super::graph::{Backing, ProcessImage, Protection};
use super::super::sys::abi;
use super::super::trace::Remote;

/// Name of its mapping.
const NAME: &str = "[vdso]";
/// What names of its functions begin with (vdso(7)).
const PREFIXES: [&str; 2] = ["__vdso_", "__kernel_"];
/// Functions are aligned to as many bytes, and what is between is not used.
const ALIGNMENT: u64 = 16;
/// Of functions that this kernel's lacks, those that are a system call of the same name.
const CALLS: &[(&str, libc::c_long)] = &[
    ("clock_gettime", libc::SYS_clock_gettime),
    ("clock_getres", libc::SYS_clock_getres),
    ("gettimeofday", libc::SYS_gettimeofday),
    ("getcpu", libc::SYS_getcpu),
    #[cfg(target_arch = "x86_64")]
    ("time", libc::SYS_time),
];

/// A function: where it begins, from the vdso's beginning, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    name: String,
    at: u64,
    room: u64,
}

/// What a function of the old one is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instead {
    /// Go on in this kernel's, so far from its beginning.
    Jump(u64),
    /// What it does has no function here.
    Code(Missing),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// A system call does the same.
    Call(libc::c_long),
    /// Whoever called it does without: -ENOSYS.
    Nothing,
}

/// The old one, and what this kernel has for each of its functions.
#[derive(Debug)]
pub struct ForeignVdso {
    bytes: Vec<u8>,
    instead: Vec<(u64, Instead)>,
}

impl ForeignVdso {
    /// From the image's, and this kernel's own.
    ///
    /// # Errors
    /// [`EngineError::Unfit`] where that can't be done.
    pub fn new(bytes: Vec<u8>, own: &[u8]) -> Result<Self> {
        let unfit = |what: String| EngineError::Unfit {
            what: format!("the job ran under another kernel, {what}"),
            way_out: "restart it under the kernel that it ran under".into(),
        };
        let Some(longest) = Current::jump(0).map(|jump| jump.len() as u64) else {
            return Err(unfit(format!("and its vdso can't be replaced on {}", Current::NAME)));
        };
        let unread =
            |whose: &str| unfit(format!("and {whose} vdso has no functions that are understood"));
        let (old, new) = (functions(&bytes), functions(own));
        let old = old.filter(|all| !all.is_empty()).ok_or_else(|| unread("its"))?;
        let new = new.ok_or_else(|| unread("this machine's"))?;
        let mut instead = Vec::with_capacity(old.len());
        for function in &old {
            if function.room < longest {
                return Err(unfit(format!("whose {} is too short to be replaced", function.name)));
            }
            let here = new.iter().find(|one| one.name == function.name);
            let what = match here {
                Some(here) => Instead::Jump(here.at),
                None => Instead::Code(missing(&function.name)),
            };
            instead.push((function.at, what));
        }
        Ok(Self { bytes, instead })
    }

    /// Its bytes as a process gets them whose own vdso lies there.
    fn replaced(&self, own_at: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (at, instead) in &self.instead {
            let code = match instead {
                Instead::Jump(offset) => Current::jump(own_at + offset),
                Instead::Code(Missing::Call(number)) => Current::calling(*number),
                Instead::Code(Missing::Nothing) => Current::answering(-(libc::ENOSYS as i16)),
            };
            let code = code.unwrap_or_default();
            let at = *at as usize;
            if let Some(place) = bytes.get_mut(at..at + code.len()) {
                place.copy_from_slice(&code);
            }
        }
        bytes
    }

    /// Puts it where the image has it. `own_at`: where this kernel's is in that process.
    ///
    /// # Errors
    /// Where there is no room for it.
    pub fn put(&self, remote: &mut Remote<'_>, image: &ProcessImage, own_at: u64) -> Result<()> {
        let place = image
            .areas
            .iter()
            .find(|area| matches!(&area.backing, Backing::Kernel { name } if name == NAME));
        let Some(place) = place else { return Ok(()) };
        let length = place.end - place.start;
        if length < self.bytes.len() as u64 {
            return Err(EngineError::Damaged("a vdso that is longer than its place".into()));
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | abi::MAP_FIXED_NOREPLACE;
        let writable = u64::from(Protection::READ | Protection::WRITE);
        let call = numbers::map(place.start, length, writable, flags as u64, u64::MAX, 0);
        remote.call("mmap of the vdso", call.number, &call.arguments)?;
        remote.memory().write_code(place.start, &self.replaced(own_at))?;
        let executable = u64::from(Protection::READ | Protection::EXEC);
        remote.call("mprotect", libc::SYS_mprotect, &[place.start, length, executable]).map(drop)
    }
}

/// What is to be done in place of a function that this kernel has not.
fn missing(name: &str) -> Missing {
    let plain = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let call = CALLS.iter().find(|(call, _)| *call == plain);
    call.map_or(Missing::Nothing, |(_, number)| Missing::Call(*number))
}

/// Functions of a vdso, but for those that return from signal handlers: these are instructions by which the kernel's own frames are known, and
/// do not read anything. `None`: it is none.
fn functions(vdso: &[u8]) -> Option<Vec<Function>> {
    let file = object::File::parse(vdso).ok()?;
    let base = file.segments().map(|segment| segment.address()).min()?;
    let mut found = Vec::new();
    for symbol in file.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        let at = symbol.address().wrapping_sub(base);
        let room = symbol.size().next_multiple_of(ALIGNMENT);
        let ours = symbol.kind() == SymbolKind::Text
            && symbol.is_definition()
            && !name.ends_with("sigreturn")
            && at.checked_add(room).is_some_and(|end| end <= vdso.len() as u64);
        if ours {
            found.push(Function { name: name.to_owned(), at, room });
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::read_maps;
    use crate::trace::Vdso;

    fn own() -> (u64, Vec<u8>) {
        let pid = std::process::id() as i32;
        let maps = read_maps(pid).unwrap();
        let at = maps.iter().find(|mapping| mapping.name == NAME).unwrap().start;
        (at, Vdso::of(pid, &maps).unwrap().image().unwrap().to_vec())
    }

    #[test]
    fn functions_are_found() {
        let (_, bytes) = own();
        let all = functions(&bytes).unwrap();
        let names: Vec<&str> = all.iter().map(|function| function.name.as_str()).collect();
        assert!(names.iter().any(|name| name.ends_with("_clock_gettime")), "{names:?}");
        assert!(functions(b"no vdso").is_none());
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn what_is_missing_is_a_system_call_or_refused() {
        assert_eq!(missing("__vdso_clock_gettime"), Missing::Call(libc::SYS_clock_gettime));
        assert_eq!(missing("__kernel_getrandom"), Missing::Nothing);
        assert!(ForeignVdso::new(b"no vdso".to_vec(), &own().1).is_err());
    }

    /// The replaced one is run: every function that tells the time tells this kernel's.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn a_replaced_one_tells_the_time() {
        let (at, bytes) = own();
        let all = functions(&bytes).unwrap();
        let clock = all.iter().find(|function| function.name.ends_with("_clock_gettime")).unwrap();
        let mut lacking = ForeignVdso::new(bytes.clone(), &bytes).unwrap();
        for (place, instead) in &mut lacking.instead {
            if *place == clock.at {
                *instead = Instead::Code(missing(&clock.name));
            }
        }
        let mut refusing = ForeignVdso::new(bytes.clone(), &bytes).unwrap();
        refusing
            .instead
            .iter_mut()
            .for_each(|(_, instead)| *instead = Instead::Code(Missing::Nothing));
        let jumping = ForeignVdso::new(bytes, &own().1).unwrap();
        for (vdso, answer) in [(jumping, 0), (lacking, 0), (refusing, -libc::ENOSYS)] {
            let code = vdso.replaced(at);
            let mut told = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: fresh memory of its own, which holds code before it is run; the function is the one of that name, with its
            // arguments, and writes one timespec.
            let returned = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let both = libc::PROT_READ | libc::PROT_WRITE;
                let memory = libc::mmap(std::ptr::null_mut(), code.len(), both, flags, -1, 0);
                assert_ne!(memory, libc::MAP_FAILED);
                std::ptr::copy_nonoverlapping(code.as_ptr(), memory.cast(), code.len());
                let executable = libc::PROT_READ | libc::PROT_EXEC;
                assert_eq!(libc::mprotect(memory, code.len(), executable), 0);
                let function: extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int =
                    std::mem::transmute(memory.byte_add(clock.at as usize));
                function(libc::CLOCK_REALTIME, &raw mut told)
            };
            assert_eq!(returned, answer);
            if answer == 0 {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                assert!(now.unwrap().as_secs().abs_diff(told.tv_sec as u64) < 100, "{told:?}");
            }
        }
    }
}
