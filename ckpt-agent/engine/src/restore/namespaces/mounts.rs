//! A mount namespace in which other things are mounted than in the job's. The process that has made it mounts them, with the
//! rights that it has there and no others.

use std::collections::BTreeMap;

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{MountSource, MountedContent, MountedEntry, OwnMount, from_hex};
use super::super::super::proc::mounts::{Mounts, flag, flags};
use super::super::super::proc::read_text;
use super::super::super::trace::Remote;

/// A folder that is there on every machine, over which a new root lies until it is one.
const PASSING: &str = "/proc";
/// Types of file systems that are made.
const MADE: [&str; 4] = ["tmpfs", "devpts", "proc", "sysfs"];

/// The file system that shows the processes of the PID namespace of whoever makes it.
const PROC: &str = "proc";

// include/uapi/linux/mount.h; the calls have one number on all architectures (scripts/syscall.tbl).
const OPEN_TREE: i64 = 428;
const MOVE_MOUNT: i64 = 429;
const OPEN_TREE_CLONE: u64 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u64 = 4;
const FSOPEN: i64 = 430;
const FSOPEN_CLOEXEC: u64 = 1;
const FSCONFIG: i64 = 431;
const FSCONFIG_CMD_CREATE: u64 = 6;
const FSMOUNT: i64 = 432;
const FSMOUNT_CLOEXEC: u64 = 1;
const AT_RECURSIVE: u64 = 0x8000;

/// Bytes that a program writes into a file at once.
const PIECE: usize = 64 * 1024;

/// Refuses what no dump writes.
pub(super) fn check(mounts: &[OwnMount], pivot: bool) -> Result<()> {
    let odd = |what: &str| Err(EngineError::Damaged(format!("mounts of a job's own: {what}")));
    if mounts.len() > OwnMount::MOST {
        return odd("too many");
    }
    if pivot != mounts.first().is_some_and(is_new_root) || mounts.iter().skip(1).any(is_new_root) {
        return odd("a root that is none");
    }
    for mount in mounts {
        if !is_path(&mount.at) || !is_path(&mount.root) || flags(&mount.options).is_none() {
            return odd("one that is none");
        }
        let fits = match &mount.source {
            MountSource::Along { .. } => true,
            MountSource::Bound { path, .. } => is_path(path),
            MountSource::Made { data, entries } => {
                let kind = mount.file_system.as_str();
                MADE.contains(&kind)
                    && is_text(data)
                    && is_text(&mount.from)
                    && (kind == "tmpfs" || entries.is_empty())
                    && (kind == "tmpfs" || mount.root == "/" || is_part_of_proc(mount))
                    && are_files(entries)
            }
        };
        if !fits {
            return odd("one that no dump writes");
        }
    }
    Ok(())
}

fn is_new_root(mount: &OwnMount) -> bool {
    mount.at == "/" && !matches!(mount.source, MountSource::Along { .. })
}

/// Whether it is a part of a /proc, over that part itself.
fn is_part_of_proc(mount: &OwnMount) -> bool {
    mount.file_system == PROC && mount.root != "/" && mount.at.ends_with(&mount.root)
}

fn is_text(text: &str) -> bool {
    text.len() < libc::PATH_MAX as usize && !text.contains('\0')
}

/// An absolute path that does not go up.
pub(super) fn is_path(path: &str) -> bool {
    is_text(path) && path.starts_with('/') && path.split('/').all(|part| part != "..")
}

/// Whether each is in a folder that comes before it, so that no path leads through a link.
fn are_files(entries: &[MountedEntry]) -> bool {
    let mut folders = std::collections::BTreeSet::new();
    let mut room = 2 * MountedEntry::MOST_BYTES;
    entries.len() <= MountedEntry::MOST
        && entries.iter().enumerate().all(|(place, entry)| {
            let path = entry.path.as_str();
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            let fits = match &entry.content {
                MountedContent::Directory => true,
                MountedContent::File { bytes } => {
                    let fits = bytes.len() <= room;
                    room = room.saturating_sub(bytes.len());
                    fits
                }
                MountedContent::Link { to } => is_text(to) && !to.is_empty(),
            };
            let is_folder = entry.content == MountedContent::Directory;
            let placed = match place {
                0 => path.is_empty() && is_folder,
                _ => !matches!(name, "" | "." | "..") && is_text(path) && folders.contains(folder),
            };
            if is_folder {
                folders.insert(path);
            }
            fits && placed
        })
}

/// Options that mean nothing in a file system: no file of /proc is a device or has a set-user-ID bit, and its links lead to
/// other mounts; terminals and message queues are not executed.
fn moot(file_system: &str) -> &'static [&'static str] {
    match file_system {
        "proc" | "mqueue" => &["nosuid", "nodev", "noexec"],
        "devpts" => &["nosuid", "noexec"],
        _ => &[],
    }
}

/// What is to be mounted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order<'o> {
    /// All of it.
    pub mounts: &'o [OwnMount],
    /// The first of them becomes the root.
    pub pivot: bool,
    /// Nothing that is mounted elsewhere comes to be mounted here.
    pub private: bool,
    /// All that the job has is read-only, and stand-ins lie over folders and files.
    pub rehearsal: bool,
    /// Descriptors of what [`whole_procs`] are, mounted nowhere yet, where there are any.
    pub procs: &'o [u64],
}

/// Every new /proc among these, by its place.
fn whole_procs(mounts: &[OwnMount]) -> impl Iterator<Item = usize> + '_ {
    let is_one = |mount: &OwnMount| {
        let is_made = matches!(mount.source, MountSource::Made { .. });
        is_made && mount.file_system == PROC && mount.root == "/"
    };
    mounts.iter().enumerate().filter(move |(_, mount)| is_one(mount)).map(|(place, _)| place)
}

/// Has a process make each new /proc among these, and mount it nowhere yet; their descriptors. That takes rights over its PID
/// namespace, which it has only before it enters a user namespace of the job's own.
///
/// # Errors
/// Failed calls.
pub(super) fn make_procs(remote: &mut Remote<'_>, mounts: &[OwnMount]) -> Result<Vec<u64>> {
    let make = |_| {
        let at = remote.scratch_data()?;
        remote.memory().write(at, format!("{PROC}\0").as_bytes())?;
        let made = remote.call("fsopen", FSOPEN, &[at, FSOPEN_CLOEXEC])?;
        remote.call("fsconfig", FSCONFIG, &[made, FSCONFIG_CMD_CREATE, 0, 0, 0])?;
        let mounted = remote.call("fsmount", FSMOUNT, &[made, FSMOUNT_CLOEXEC, 0])?;
        remote.call("close", libc::SYS_close, &[made])?;
        Ok(mounted)
    };
    whole_procs(mounts).map(make).collect()
}

impl Order<'_> {
    /// Whether a mount has its options: in a rehearsal the job's have others, which can't be changed.
    fn has_options(&self, mount: &OwnMount) -> bool {
        !self.rehearsal || matches!(mount.source, MountSource::Made { .. })
    }
}

/// Mounts everything in the namespace of a process, which must have made it.
///
/// # Errors
/// What can't be mounted here; mounts that come out otherwise than they were.
pub(super) fn make(remote: &mut Remote<'_>, pid: i32, order: &Order<'_>) -> Result<()> {
    let Order { mounts, pivot, private, .. } = *order;
    let mut maker = Maker { remote, prefix: if pivot { PASSING } else { "" } };
    let how = libc::MS_REC | if private { libc::MS_PRIVATE } else { libc::MS_SLAVE };
    maker.mount("", "/", "", how, "")?;
    let mut copies: BTreeMap<usize, u64> =
        whole_procs(mounts).zip(order.procs.iter().copied()).collect();
    // Before anything is mounted over what they show.
    for (place, mount) in mounts.iter().enumerate() {
        if let MountSource::Bound { path, recursive } = &mount.source {
            // Stand-ins of a rehearsal can't be left out of a copy.
            copies.insert(place, maker.copy(path, *recursive || order.rehearsal)?);
        }
    }
    for (place, mount) in mounts.iter().enumerate() {
        let made = maker.one(mount, copies.get(&place).copied(), order.has_options(mount));
        made.map_err(|error| at(&mount.at, &error))?;
    }
    for copy in copies.into_values() {
        maker.remote.call("close", libc::SYS_close, &[copy])?;
    }
    if pivot {
        maker.enter_root()?;
    }
    compare(pid, order)
}

fn at(path: &str, error: &EngineError) -> EngineError {
    EngineError::Unfit {
        what: format!("a mount of the job's own cannot be made here, {path}: {error}"),
        way_out: "restart it where the same may be mounted as where it ran".into(),
    }
}

/// What is mounted must be what was: a copy has brought along whatever the job has below it here. The file system may be
/// another one, where the job's is.
fn compare(pid: i32, order: &Order<'_>) -> Result<()> {
    let text = read_text(&format!("/proc/{pid}/mountinfo"))?.ok_or(EngineError::Gone(pid))?;
    let found = Mounts::parse(&text).ok_or_else(|| EngineError::odd("mountinfo", text.clone()))?;
    let mut left: BTreeMap<_, usize> = BTreeMap::new();
    for one in &found.all {
        let options = telling(&one.file_system, &one.options);
        *left.entry((&one.at, options)).or_default() += 1;
    }
    for mount in order.mounts.iter().filter(|mount| order.has_options(mount)) {
        let options = telling(&mount.file_system, &mount.options);
        match left.get_mut(&(&mount.at, options)).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => return Err(otherwise(&mount.at)),
        }
    }
    let more = left.into_iter().find(|(_, count)| *count > 0);
    match more.filter(|_| order.pivot && !order.rehearsal) {
        Some(((at, _), _)) => Err(otherwise(at)),
        None => Ok(()),
    }
}

/// The options of a mount that make a difference.
fn telling<'o>(file_system: &str, options: &'o str) -> Vec<&'o str> {
    options.split(',').filter(|option| !moot(file_system).contains(option)).collect()
}

fn otherwise(at: &str) -> EngineError {
    let what = "what is mounted comes out otherwise than it was";
    EngineError::Unfit {
        what: format!("{what}: {at}"),
        way_out: "restart it where the same is mounted as it was for the job".into(),
    }
}

struct Maker<'r, 't> {
    remote: &'r mut Remote<'t>,
    prefix: &'static str,
}

impl Maker<'_, '_> {
    /// Writes texts into the process; their addresses, 0 for one that is empty.
    fn texts<const N: usize>(&mut self, texts: [&str; N]) -> Result<[u64; N]> {
        let start = self.remote.scratch_data()?;
        let mut bytes = Vec::new();
        let addresses = texts.map(|text| {
            let address = if text.is_empty() { 0 } else { start + bytes.len() as u64 };
            bytes.extend(text.as_bytes());
            bytes.push(0);
            address
        });
        self.remote.memory().write(start, &bytes)?;
        Ok(addresses)
    }

    fn mount(
        &mut self,
        from: &str,
        at: &str,
        kind: &str,
        flags: libc::c_ulong,
        data: &str,
    ) -> Result<()> {
        let [from, at, kind, data] = self.texts([from, at, kind, data])?;
        let arguments = [from, at, kind, flags as _, data];
        self.remote.call("mount", libc::SYS_mount, &arguments).map(drop)
    }

    fn copy(&mut self, path: &str, recursive: bool) -> Result<u64> {
        let [text] = self.texts([path])?;
        let whole = if recursive { AT_RECURSIVE } else { 0 };
        let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u64 | whole;
        let copied = self.remote.call("open_tree", OPEN_TREE, &[here(), text, flags]);
        copied.map_err(|error| at(path, &error))
    }

    fn attach(&mut self, copy: u64, place: &str) -> Result<()> {
        let start = self.remote.scratch_data()?;
        self.remote.memory().write(start, format!("\0{place}\0").as_bytes())?;
        let arguments = [copy, start, here(), start + 1, MOVE_MOUNT_F_EMPTY_PATH];
        self.remote.call("move_mount", MOVE_MOUNT, &arguments).map(drop)
    }

    fn one(&mut self, mount: &OwnMount, copy: Option<u64>, has_options: bool) -> Result<()> {
        let place = match (self.prefix, mount.at.as_str()) {
            ("", at) => at.to_owned(),
            (prefix, "/") => prefix.to_owned(),
            (prefix, at) => format!("{prefix}{at}"),
        };
        let mut wanted = flags(&mount.options).unwrap_or_default();
        // The job's own has them, and a user's namespace can't take them away.
        wanted |= moot(&mount.file_system)
            .iter()
            .filter_map(|option| flag(option))
            .sum::<libc::c_ulong>();
        match (&mount.source, copy) {
            (MountSource::Along { changed: false }, _) => return Ok(()),
            (MountSource::Along { changed: true }, _) => {}
            (_, Some(copy)) => self.attach(copy, &place)?,
            (MountSource::Made { .. }, None) if is_part_of_proc(mount) => {
                self.mount(&place, &place, "", libc::MS_BIND, "")?;
            }
            (MountSource::Made { data, entries }, None) => {
                // What is read-only can't be filled.
                let first = wanted & !libc::MS_RDONLY;
                let kind = &mount.file_system;
                let from = if mount.from.is_empty() { kind } else { &mount.from };
                self.mount(from, &place, kind, first, data)?;
                self.fill(&place, &mount.root, entries)?;
            }
            (MountSource::Bound { .. }, None) => {
                return Err(EngineError::odd("a copy", "missing"));
            }
        }
        if !has_options {
            return Ok(());
        }
        self.mount("", &place, "", libc::MS_REMOUNT | libc::MS_BIND | wanted, "")
    }

    /// Fills a file system in memory, of which only a folder may be shown.
    fn fill(&mut self, place: &str, root: &str, entries: &[MountedEntry]) -> Result<()> {
        let mut top = place.to_owned();
        for part in root.split('/').filter(|part| !part.is_empty()) {
            top = format!("{top}/{part}");
            let [text] = self.texts([&top])?;
            self.remote.call("mkdir", libc::SYS_mkdirat, &[here(), text, 0o755])?;
        }
        for entry in entries {
            self.put(&top, entry).map_err(|error| at(&entry.path, &error))?;
        }
        // Parents last: what is put into a folder changes its time.
        for entry in entries.iter().rev() {
            self.date(&path_of(&top, entry), entry.modified_ns)?;
        }
        if top == place {
            return Ok(());
        }
        let copy = self.copy(&top, false)?;
        let [text] = self.texts([place])?;
        self.remote.call("umount", libc::SYS_umount2, &[text, libc::MNT_DETACH as u64])?;
        self.attach(copy, place)?;
        self.remote.call("close", libc::SYS_close, &[copy]).map(drop)
    }

    fn put(&mut self, top: &str, entry: &MountedEntry) -> Result<()> {
        let path = path_of(top, entry);
        match &entry.content {
            MountedContent::Directory if entry.path.is_empty() => {}
            MountedContent::Directory => {
                let [text] = self.texts([&path])?;
                self.remote.call("mkdir", libc::SYS_mkdirat, &[here(), text, 0o700])?;
            }
            MountedContent::Link { to } => {
                let [to, text] = self.texts([to, &path])?;
                self.remote.call("symlink", libc::SYS_symlinkat, &[to, here(), text])?;
            }
            MountedContent::File { bytes } => self.write(&path, &from_hex(bytes)?)?,
        }
        let [text] = self.texts([&path])?;
        if let Some((user, group)) = entry.owner {
            let flags = libc::AT_SYMLINK_NOFOLLOW as u64;
            let arguments = [here(), text, u64::from(user), u64::from(group), flags];
            self.remote.call("chown", libc::SYS_fchownat, &arguments)?;
        }
        if !matches!(entry.content, MountedContent::Link { .. }) {
            let mode = u64::from(entry.mode & 0o7777);
            self.remote.call("chmod", libc::SYS_fchmodat, &[here(), text, mode])?;
        }
        Ok(())
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let [text] = self.texts([path])?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let arguments = [here(), text, flags as u64, 0o600];
        let file = self.remote.call("open", libc::SYS_openat, &arguments)?;
        let start = self.remote.scratch_data()?;
        for piece in bytes.chunks(PIECE) {
            self.remote.memory().write(start, piece)?;
            let arguments = [file, start, piece.len() as u64];
            let written = self.remote.call("write", libc::SYS_write, &arguments)?;
            if written != piece.len() as u64 {
                return Err(EngineError::odd("a write", "is short"));
            }
        }
        self.remote.call("close", libc::SYS_close, &[file]).map(drop)
    }

    /// Sets when a file was last modified; the last access is now.
    fn date(&mut self, path: &str, modified_ns: i64) -> Result<()> {
        const SECOND: i64 = 1_000_000_000;
        let start = self.remote.scratch_data()?;
        // Two of struct timespec, then the path.
        let times = [
            0,
            libc::UTIME_NOW as u64,
            modified_ns.div_euclid(SECOND) as u64,
            modified_ns.rem_euclid(SECOND) as u64,
        ];
        let mut bytes = super::super::super::arch::words::to_words(&times);
        let text = start + bytes.len() as u64;
        bytes.extend(path.as_bytes());
        bytes.push(0);
        self.remote.memory().write(start, &bytes)?;
        let arguments = [here(), text, start, libc::AT_SYMLINK_NOFOLLOW as u64];
        self.remote.call("utimensat", libc::SYS_utimensat, &arguments).map(drop)
    }

    /// Makes what was built the root, without what was there (pivot_root(2)).
    fn enter_root(&mut self) -> Result<()> {
        let [new] = self.texts([self.prefix])?;
        self.remote.call("chdir", libc::SYS_chdir, &[new])?;
        let [dot] = self.texts(["."])?;
        self.remote.call("pivot_root", libc::SYS_pivot_root, &[dot, dot])?;
        self.remote.call("umount", libc::SYS_umount2, &[dot, libc::MNT_DETACH as u64])?;
        let [root] = self.texts(["/"])?;
        self.remote.call("chdir", libc::SYS_chdir, &[root]).map(drop)
    }
}

fn path_of(top: &str, entry: &MountedEntry) -> String {
    match entry.path.as_str() {
        "" => top.to_owned(),
        path => format!("{top}/{path}"),
    }
}

/// AT_FDCWD as an argument.
fn here() -> u64 {
    i64::from(libc::AT_FDCWD) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, content: MountedContent) -> MountedEntry {
        MountedEntry { path: path.to_owned(), mode: 0o700, owner: None, modified_ns: 0, content }
    }

    fn made(entries: Vec<MountedEntry>) -> OwnMount {
        OwnMount {
            at: "/mnt".to_owned(),
            root: "/".to_owned(),
            file_system: "tmpfs".to_owned(),
            from: String::new(),
            options: "rw,relatime".to_owned(),
            source: MountSource::Made { data: String::new(), entries },
        }
    }

    #[test]
    fn what_no_dump_writes_is_damage() {
        use MountedContent::{Directory, Link};
        let link = || Link { to: "/etc".to_owned() };
        let top = || entry("", Directory);
        assert!(
            check(&[made(vec![top(), entry("a", Directory), entry("a/b", link())])], false).is_ok()
        );
        for entries in [
            vec![entry("a", Directory)],
            vec![top(), entry("a", link()), entry("a/b", Directory)],
            vec![top(), entry("..", Directory)],
            vec![top(), entry("a/b", Directory)],
            vec![top(), entry("/", Directory)],
        ] {
            assert!(check(&[made(entries.clone())], false).is_err(), "{entries:?}");
        }
        let good = made(vec![top()]);
        for bad in [
            OwnMount { at: "mnt".to_owned(), ..good.clone() },
            OwnMount { at: "/mnt/../..".to_owned(), ..good.clone() },
            OwnMount { at: "/".to_owned(), ..good.clone() },
            OwnMount { file_system: "ext4".to_owned(), ..good.clone() },
            OwnMount { options: "rw,dev".to_owned(), ..good.clone() },
            OwnMount { from: "a".repeat(libc::PATH_MAX as usize), ..good.clone() },
            OwnMount { from: "a\0b".to_owned(), ..good.clone() },
        ] {
            assert!(check(std::slice::from_ref(&bad), false).is_err(), "{bad:?}");
        }
        assert!(check(&[good], true).is_err());
    }
}
