//! Where the job's own mounts show what lies on mounts of its processes' own. A restart opens files there, before there is
//! any other mount namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::Inside;
use super::super::super::objects::Probe;
use super::super::super::proc::mounts::{Mounts, below, joined};
use super::super::super::proc::{Mapping, namespace_root, root_directory};
use super::super::super::sys::abi::S_IFDIR;
use super::super::super::sys::stat::identity;
use super::refuse;

/// What a link of /proc says of a file that has no name any more.
pub(super) const DELETED: &str = " (deleted)";
/// Where processes look at processes.
const PROC: &str = "/proc";

/// The mounts of a job, and those of mount namespaces of its own.
#[derive(Debug)]
pub struct Places {
    /// The root directory of the job's init, and its mount namespace, which outlive it.
    root: File,
    _namespace: File,
    home: Mounts,
    /// Those of each mount namespace, by its place among the namespaces.
    own: BTreeMap<u32, Mounts>,
    /// In which of them processes are.
    of: BTreeMap<i32, u32>,
    /// Mounts that are as in the job's own, by their numbers.
    unchanged: BTreeSet<i32>,
}

/// Where something is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The path under which the job's own mounts show it.
    pub path: String,
    /// It lies on a mount that is not as the job's.
    pub inside: Option<Inside>,
    /// The path is that of `inside`: it lies in a file system in memory that the job's own mounts do not show.
    pub is_in_memory: bool,
}

impl Place {
    fn in_job(path: &str) -> Self {
        Self { path: path.to_owned(), inside: None, is_in_memory: false }
    }
}

/// Device and inode number, as stat(2) tells them.
type Identity = (u64, u64);

impl Places {
    /// Of a job. `of`: which processes are in which namespaces.
    pub(super) fn new(
        init: i32,
        home: Mounts,
        own: BTreeMap<u32, Mounts>,
        of: BTreeMap<i32, u32>,
        unchanged: BTreeSet<i32>,
    ) -> Result<Self> {
        let open = |name: &str, flags: libc::c_int| {
            let path = format!("/proc/{init}/{name}");
            let opened = File::options().read(true).custom_flags(flags).open(&path);
            opened.map_err(|error| EngineError::system("open", path, error))
        };
        let (root, namespace) = (open("root", libc::O_PATH)?, open("ns/mnt", 0)?);
        Ok(Self { root, _namespace: namespace, home, own, of, unchanged })
    }

    /// The folder from which this process reaches what the job's own mounts show.
    pub fn root(&self) -> String {
        format!("/proc/self/fd/{}", self.root.as_raw_fd())
    }

    /// Whether a process is among mounts of its own.
    pub(super) fn is_inside(&self, pid: i32) -> bool {
        self.of.contains_key(&pid)
    }

    /// A mount of a namespace of the job's own: the namespace, its mounts, and the place among these.
    fn own_mount(&self, mount: i32) -> Option<(u32, &Mounts, usize)> {
        let number = |own: &Mounts| own.all.iter().position(|one| one.id == mount);
        self.own.iter().find_map(|(at, own)| Some((*at, own, number(own)?)))
    }

    /// Where a file is that lies on a mount, under a path that the mount's namespace shows.
    pub(super) fn on_mount(&self, mount: i32, path: &str, file: Identity) -> Option<Place> {
        let Some((namespace, own, place)) = self.own_mount(mount) else {
            return (self.identity_of(path) == Some(file)).then(|| Place::in_job(path));
        };
        let there = self.candidates(own, place, path);
        let there = there.into_iter().find(|there| self.identity_of(there) == Some(file))?;
        let inside = Inside { namespace, path: path.to_owned() };
        let inside = (!self.unchanged.contains(&mount)).then_some(inside);
        Some(Place { path: there, inside, is_in_memory: false })
    }

    /// Where a file is that a process knows under a path: among its own mounts, or the job's, where a restart has opened it.
    pub(super) fn of_path(&self, pid: i32, path: &str, file: Identity) -> Option<Place> {
        let own = self.of.get(&pid).and_then(|at| Some((*at, self.own.get(at)?)));
        let among_own = own.and_then(|(_, own)| {
            let mount = own.all.get(own.shown_at(path))?.id;
            self.on_mount(mount, path, file)
        });
        among_own.or_else(|| (self.identity_of(path) == Some(file)).then(|| Place::in_job(path)))
    }

    /// Where a mapped file is; the kernel shows no mount of it. `from`: where the process's mount namespace begins.
    fn of_mapping(&self, pid: i32, from: &str, mapping: &Mapping) -> Option<String> {
        let (path, _) = mapping.path();
        let own = self.of.get(&pid).and_then(|at| self.own.get(at));
        let ways = own.map(|own| (own, false)).into_iter().chain([(&self.home, true)]);
        for (mounts, is_of_job) in ways {
            let place = mounts.shown_at(path);
            let Some(mount) = mounts.all.get(place) else { continue };
            let root = if is_of_job { self.root() } else { from.to_owned() };
            // Of overlayfs older kernels show the file that lies below.
            let is_its = mount.number() == Some(mapping.device) || mount.file_system == "overlay";
            let Some(found) = stat(&format!("{root}{path}")) else { continue };
            if !is_its || found.ino() != mapping.inode {
                continue;
            }
            let file = (found.dev(), found.ino());
            let there = match is_of_job {
                true => Some(path.to_owned()),
                false => self.on_mount(mount.id, path, file).map(|place| place.path),
            };
            if there.is_some() {
                return there;
            }
        }
        None
    }

    /// Whether the kernel shows a file of a mapping under a path, so that it must be found.
    fn is_named(mapping: &Mapping) -> bool {
        let (path, deleted) = mapping.path();
        !deleted && path.starts_with('/') && mapping.inode != 0
    }

    /// Gives mapped files the paths under which the job's own mounts show them.
    ///
    /// # Errors
    /// The refusal of one that they do not show.
    pub fn place_mappings(&self, pid: i32, mappings: &mut [Mapping]) -> Result<()> {
        if !self.is_inside(pid) {
            return Ok(());
        }
        let from = namespace_root(pid)?;
        let mut known: BTreeMap<(String, u64, u64), String> = BTreeMap::new();
        for mapping in mappings.iter_mut().filter(|mapping| Self::is_named(mapping)) {
            let key = (mapping.name.clone(), mapping.device, mapping.inode);
            let there = match known.get(&key) {
                Some(there) => there.clone(),
                None => {
                    let there = self.of_mapping(pid, &from, mapping);
                    there.ok_or_else(|| elsewhere(mapping.path().0, "has mapped"))?
                }
            };
            mapping.name.clone_from(&there);
            known.insert(key, there);
        }
        Ok(())
    }

    /// Where the executable of a process is, by what its link in /proc shows.
    ///
    /// # Errors
    /// The refusal of one that the job's own mounts do not show.
    pub fn executable(&self, pid: i32, link: &str) -> Result<Place> {
        if !self.is_inside(pid) || link.ends_with(DELETED) {
            return Ok(Place::in_job(link));
        }
        let file = stat(&format!("/proc/{pid}/exe")).map(|file| (file.dev(), file.ino()));
        let there = file.and_then(|file| self.of_path(pid, link, file));
        there.ok_or_else(|| elsewhere(link, "runs"))
    }

    /// Where an open file is; `None`: it is found by its process as it is.
    ///
    /// # Errors
    /// The refusal of one that the job's own mounts do not show.
    pub(super) fn open_file(
        &self,
        pid: i32,
        link: &str,
        mount: i32,
        file: Identity,
        is_folder: bool,
    ) -> Result<Option<Place>> {
        if !link.starts_with('/') {
            return Ok(None);
        }
        if let Some(path) = link.strip_suffix(DELETED) {
            return Ok(self.lost(mount, path).map(|path| Place::in_job(&path)));
        }
        if self.is_own_proc(pid, mount) {
            // Whoever has a folder open reaches all that lies around it. That of a process is opened by a process.
            let is_opened_by_it = is_of_process(link) && root_directory(pid)?.is_none();
            return match is_folder && !is_opened_by_it {
                true => Err(refuse(format!("has open the folder {link} of mounts of its own"))),
                false => Ok(None),
            };
        }
        let place = self.on_mount(mount, link, file).or_else(|| self.in_memory(mount, link));
        let mut place = place.ok_or_else(|| elsewhere(link, "has open"))?;
        if place.inside.as_ref().is_some_and(|inside| !self.is_shown(inside, file)) {
            if is_folder || place.is_in_memory {
                let what = format!("has open {link}, which its mounts do not show any more");
                return Err(refuse(what));
            }
            place.inside = None;
        }
        Ok(Some(place))
    }

    /// A file of a file system in memory that a namespace has mounted for itself.
    fn in_memory(&self, mount: i32, path: &str) -> Option<Place> {
        let (namespace, own, place) = self.own_mount(mount)?;
        let found = own.all.get(place)?;
        let is_of_job = self.home.all.iter().any(|one| one.device == found.device);
        let inside = Some(Inside { namespace, path: path.to_owned() });
        (found.file_system == "tmpfs" && !is_of_job).then(|| Place {
            path: path.to_owned(),
            inside,
            is_in_memory: true,
        })
    }

    /// Whether a path among mounts leads to a file, as it must for whoever opens it there: another mount may cover it.
    fn is_shown(&self, inside: &Inside, file: Identity) -> bool {
        let mut there = self.of.iter().filter(|(_, at)| **at == inside.namespace);
        let seen = there.next().and_then(|(pid, _)| {
            let path = format!("{}{}", namespace_root(*pid).ok()?, inside.path);
            std::fs::symlink_metadata(path).ok()
        });
        seen.is_some_and(|seen| (seen.dev(), seen.ino()) == file)
    }

    /// Gives an open file the path under which the job's own mounts show it, and tells what it is among its process's.
    ///
    /// # Errors
    /// As [`Places::open_file`].
    pub fn place(&self, probe: &mut Probe) -> Result<Option<Inside>> {
        let mount = probe.info.get("mnt_id").and_then(|id| id.parse().ok()).unwrap_or(-1);
        let file = identity(&probe.stat);
        let is_folder = probe.file_type() == S_IFDIR;
        let Some(place) = self.open_file(probe.host_pid, &probe.link, mount, file, is_folder)?
        else {
            if probe.link.starts_with('/') {
                probe.root = namespace_root(probe.host_pid)?;
            }
            return Ok(None);
        };
        if place.is_in_memory {
            probe.root = namespace_root(probe.host_pid)?;
            probe.is_in_memory = true;
            return Ok(place.inside);
        }
        let deleted = if probe.link.ends_with(DELETED) { DELETED } else { "" };
        probe.is_seen_at(format!("{}{deleted}", place.path), self.root());
        Ok(place.inside)
    }

    /// Whether a mount is the /proc of a process's own mount namespace, where it finds the job's processes again.
    fn is_own_proc(&self, pid: i32, mount: i32) -> bool {
        let own = self.of.get(&pid).and_then(|at| self.own.get(at));
        let found = own.and_then(|own| own.all.iter().find(|one| one.id == mount));
        found.is_some_and(|one| one.file_system == "proc" && one.at == PROC && one.root == "/")
    }

    /// Where a file was that has lost its name.
    fn lost(&self, mount: i32, path: &str) -> Option<String> {
        if self.home.all.iter().any(|one| one.id == mount) {
            return Some(path.to_owned());
        }
        let (_, own, place) = self.own_mount(mount)?;
        let folder = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let there = self.candidates(own, place, path).into_iter();
        there.into_iter().find(|there| self.identity_of(&format!("{}/", folder(there))).is_some())
    }

    /// Under which paths the job's mounts may show what a mount shows under one; those that can be written to come first.
    fn candidates(&self, own: &Mounts, place: usize, path: &str) -> Vec<String> {
        let Some(mount) = own.all.get(place) else { return Vec::new() };
        let Some(rest) = below(path, &mount.at) else { return Vec::new() };
        let within = joined(&mount.root, rest);
        let of_job = self.home.all.iter().filter(|one| one.device == mount.device);
        let mut found: Vec<(bool, String)> = of_job
            .filter_map(|one| {
                let there = joined(&one.at, below(&within, &one.root)?);
                Some((one.options.split(',').any(|option| option == "ro"), there))
            })
            .collect();
        found.sort_by_key(|(is_read_only, _)| *is_read_only);
        found.into_iter().map(|(_, there)| there).collect()
    }

    /// What a path leads to among the job's own mounts.
    pub(super) fn identity_of(&self, path: &str) -> Option<Identity> {
        let there = std::fs::symlink_metadata(format!("{}{path}", self.root())).ok()?;
        Some((there.dev(), there.ino()))
    }
}

/// Whether a path leads to where /proc shows a process.
fn is_of_process(path: &str) -> bool {
    let name = below(path, PROC).and_then(|rest| rest.split('/').nth(1));
    name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty())
}

pub(super) fn elsewhere(path: &str, does: &str) -> super::EngineError {
    refuse(format!(
        "{does} {path}, which the job's own mounts do not show, in a job with other mounts"
    ))
}

pub(super) fn stat(path: &str) -> Option<Metadata> {
    std::fs::metadata(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "1 0 8:1 / / rw,relatime - ext4 /dev/a rw\n\
        2 1 8:2 / /data ro - ext4 /dev/b rw\n\
        3 1 8:2 /part /part rw - ext4 /dev/b rw\n";
    const OWN: &str = "11 0 8:1 /image / ro - ext4 /dev/a rw\n\
        12 11 8:2 /part/of /work rw - ext4 /dev/b rw\n\
        13 11 0:77 / /tmp rw - tmpfs none rw\n";

    fn places() -> Places {
        let [home, own] = [HOME, OWN].map(|text| Mounts::parse(text).unwrap());
        let own = BTreeMap::from([(5, own)]);
        let own_pid = std::process::id() as i32;
        let of = BTreeMap::from([(own_pid, 5)]);
        Places::new(own_pid, home, own, of, BTreeSet::new()).unwrap()
    }

    #[test]
    fn paths_are_told_from_mounts() {
        let places = places();
        let of = |place: usize, path: &str| places.candidates(&places.own[&5], place, path);
        assert_eq!(of(0, "/usr/bin/a"), ["/image/usr/bin/a"]);
        // What can be written to comes first.
        assert_eq!(of(1, "/work/file"), ["/part/of/file", "/data/part/of/file"]);
        assert_eq!(of(1, "/work"), ["/part/of", "/data/part/of"]);
        assert!(of(1, "/usr/bin/a").is_empty());
        assert!(of(2, "/tmp/file").is_empty());
    }

    #[test]
    fn another_file_under_the_same_path_is_none() {
        let places = places();
        let file = places.identity_of("/proc/self").unwrap();
        assert_eq!(places.on_mount(1, "/proc/self", file), Some(Place::in_job("/proc/self")));
        assert_eq!(places.on_mount(1, "/proc/self", (file.0, file.1 + 1)), None);
        assert_eq!(places.on_mount(13, "/tmp/file", file), None);
    }

    #[test]
    fn processes_are_told_in_proc() {
        assert!(is_of_process("/proc/12") && is_of_process("/proc/12/fd"));
        for other in ["/proc", "/proc/sys", "/proc/", "/proc12/1", "/tmp/proc/1"] {
            assert!(!is_of_process(other), "{other}");
        }
    }
}
