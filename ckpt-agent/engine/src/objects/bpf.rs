//! Maps of bpf(2). What one is and holds, the kernel tells those with CAP_SYS_ADMIN, so only root's jobs can have them. One that
//! a program in the kernel uses is refused: a restart could not have that use the new one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::BlobId;
use super::super::sys::bpf::{self, Shape};
use super::{DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved};

/// What the user can do about all of it.
const CLOSE: &str = "close it while checkpoints are taken, or run without it";
/// BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_LPM_TRIE
const KINDS: [u32; 3] = [1, 2, 11];
/// BPF_F_NUMA_NODE: which one is not told, so it must be the only one.
const OF_NODE: u32 = 1 << 2;
/// BPF_F_NO_PREALLOC, BPF_F_ZERO_SEED, BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG, BPF_F_MMAPABLE
const FLAGS: u32 = 1 | OF_NODE | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10;
/// The memory nodes of this machine (Documentation/ABI/stable/sysfs-devices-node).
const NODES: &str = "/sys/devices/system/node/online";
/// BPF_F_RDONLY and BPF_F_WRONLY, of a descriptor.
const READ_ONLY: u32 = 1 << 3;
const WRITE_ONLY: u32 = 1 << 4;
/// Most entries of one map: each takes two calls while the job stands.
const MOST_ENTRIES: usize = 1 << 16;
/// Most bytes that a map has room for.
const MOST_BYTES: u64 = 64 << 20;

/// A descriptor of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BpfMap {
    /// Which map: the number that it had. Several descriptions may be of one.
    pub id: u32,
    /// BPF_MAP_TYPE_*
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Room for so many entries.
    pub max_entries: u32,
    /// BPF_F_*
    pub flags: u32,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// BPF_MAP_FREEZE
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
    /// Its entries, each a key and its value.
    pub content: BlobId,
}

impl BpfMap {
    fn of(shape: &Shape, id: u32, frozen: bool) -> Self {
        let end = shape.name.iter().position(|byte| *byte == 0).unwrap_or(shape.name.len());
        Self {
            id,
            map_type: shape.kind,
            key_size: shape.key_size,
            value_size: shape.value_size,
            max_entries: shape.max_entries,
            flags: shape.flags,
            name: String::from_utf8_lossy(&shape.name[..end]).into_owned(),
            frozen,
            content: BlobId(0),
        }
    }

    /// As the kernel takes it, if a dump could have written it.
    fn shape(&self) -> Option<Shape> {
        let mut name = [0; 16];
        // The last byte is a zero.
        let room = name.get_mut(..self.name.len()).filter(|room| room.len() < 16)?;
        room.copy_from_slice(self.name.as_bytes());
        let shape = Shape {
            kind: self.map_type,
            key_size: self.key_size,
            value_size: self.value_size,
            max_entries: self.max_entries,
            flags: self.flags,
            name,
        };
        (KINDS.contains(&shape.kind) && shape.flags & !FLAGS == 0 && fits(&shape)).then_some(shape)
    }

    /// Makes it, with its content.
    fn make(&self, context: &RestoreContext<'_>) -> Result<OwnedFd> {
        let damaged = || EngineError::Damaged("a BPF map that no dump writes".to_owned());
        let shape = self.shape().ok_or_else(damaged)?;
        let content = context.blob(self.content)?;
        let (key_size, size) = (self.key_size as usize, entry_size(&shape) as usize);
        if content.len() % size != 0 || content.len() / size > MOST_ENTRIES {
            return Err(damaged());
        }
        let unfit = |error: std::io::Error| EngineError::Unfit {
            what: format!("a BPF map cannot be made here: {error}"),
            way_out: "restart it as root, under a kernel with such maps".into(),
        };
        let made = bpf::make(&shape).map_err(unfit)?;
        for entry in content.chunks_exact(size) {
            let (key, value) = entry.split_at(key_size);
            bpf::put(&made, &shape, key, value).map_err(unfit)?;
        }
        if self.frozen {
            bpf::freeze(&made).map_err(unfit)?;
        }
        Ok(made)
    }
}

fn entry_size(shape: &Shape) -> u64 {
    u64::from(shape.key_size) + u64::from(shape.value_size)
}

fn fits(shape: &Shape) -> bool {
    entry_size(shape) > 0
        && entry_size(shape).saturating_mul(u64::from(shape.max_entries)) <= MOST_BYTES
}

/// Whether all memory of this machine is in node 0.
fn has_one_node() -> bool {
    match std::fs::read_to_string(NODES) {
        Ok(nodes) => nodes.trim() == "0",
        // A kernel without nodes.
        Err(error) => {
            error.kind() == std::io::ErrorKind::NotFound && Path::new("/sys/devices").is_dir()
        }
    }
}

fn refuse(what: impl Into<String>) -> EngineError {
    Refusal::new(what, CLOSE).into()
}

impl ObjectKind for BpfMap {
    fn recognise(probe: &Probe) -> bool {
        probe.is_anonymous("bpf-map")
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let told = bpf::told(&probe.copy)
            .map_err(|_| refuse("a BPF map, of which only root can tell what it is"))?;
        let shape = told.shape;
        if !KINDS.contains(&shape.kind) {
            let what =
                format!("a BPF map of another type ({}) than hash, array and trie", shape.kind);
            return Err(refuse(what));
        }
        let is_known = shape.flags & OF_NODE == 0 || has_one_node();
        if told.has_more || !is_known || shape.flags & !FLAGS != 0 {
            return Err(refuse(
                "a BPF map with types (BTF), a device, or flags that are not told in full",
            ));
        }
        if !fits(&shape) {
            return Err(refuse(format!(
                "a BPF map with room for more than {} MiB",
                MOST_BYTES >> 20
            )));
        }
        if context.user.is_some() {
            return Err(refuse("a BPF map in a user's job, which could not make it again"));
        }
        match bpf::is_used(told.id) {
            Ok(false) => {}
            Ok(true) => return Err(refuse("a BPF map that a program in the kernel uses")),
            Err(_) => return Err(refuse("a BPF map, of which only root can tell who uses it")),
        }
        let frozen = probe.info.get("frozen") == Some("1");
        Ok(Self::of(&shape, told.id, frozen))
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        let mut known = BTreeMap::new();
        for found in all {
            let probe = found.probe;
            let named = |error: EngineError| error.at(probe.pid, &probe.comm, probe.fd);
            found.object.content = match known.entry(found.object.id) {
                Entry::Occupied(other) if !context.cluster => *other.get(),
                Entry::Occupied(_) => {
                    let what = "one of several descriptions of a BPF map, in a job of a cluster";
                    return Err(named(refuse(what)));
                }
                Entry::Vacant(new) => {
                    let content = read(found.object.id).map_err(named)?;
                    *new.insert(context.keep(content))
                }
            };
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        let mut made: BTreeMap<u32, (&Self, u32, OwnedFd)> = BTreeMap::new();
        for saved in all {
            let (map, id, flags) = (saved.object, saved.id, saved.file.flags);
            let (first, here, _) = match made.entry(map.id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let fd = map.make(context)?;
                    let failed = |error| EngineError::system("bpf", "a new map", error);
                    let here = bpf::told(&fd).map_err(failed)?.id;
                    new.insert((map, here, fd))
                }
            };
            if *first != map {
                return Err(EngineError::Damaged("a BPF map that is another one, too".to_owned()));
            }
            let access = match flags & libc::O_ACCMODE {
                libc::O_RDONLY => READ_ONLY,
                libc::O_WRONLY => WRITE_ONLY,
                _ => 0,
            };
            let opened = bpf::open(*here, access)
                .map_err(|error| EngineError::system("bpf", "a map by its number", error))?;
            context.park(id, opened)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

/// All entries of a map, through a description of one's own: the job's may not be for reading.
fn read(id: u32) -> Result<Vec<u8>> {
    let failed = |error| EngineError::system("bpf", "a map", error);
    let map = bpf::open(id, READ_ONLY).map_err(failed)?;
    let shape = bpf::told(map.as_fd()).map_err(failed)?.shape;
    let entries = bpf::entries(&map, &shape, MOST_ENTRIES).map_err(failed)?;
    entries.ok_or_else(|| refuse(format!("a BPF map with more than {MOST_ENTRIES} entries")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> BpfMap {
        BpfMap {
            id: 7,
            map_type: 1,
            key_size: 4,
            value_size: 8,
            max_entries: 10,
            flags: 1,
            name: "numbers".to_owned(),
            frozen: false,
            content: BlobId(0),
        }
    }

    #[test]
    fn what_a_dump_writes_is_made() {
        let shape = map().shape().unwrap();
        assert_eq!(BpfMap::of(&shape, 7, false), map());
    }

    #[test]
    fn what_no_dump_writes_is_damage() {
        for odd in [
            BpfMap { map_type: 4, ..map() },
            BpfMap { flags: READ_ONLY, ..map() },
            BpfMap { name: "x".repeat(16), ..map() },
            BpfMap { key_size: 0, value_size: 0, ..map() },
            BpfMap { max_entries: u32::MAX, ..map() },
            BpfMap { value_size: u32::MAX, ..map() },
        ] {
            assert_eq!(odd.shape(), None, "{odd:?}");
        }
    }
}
