//! What is mounted in the mount namespace of a process (proc_pid_mountinfo(5)).

use std::collections::{BTreeMap, HashMap};

use super::super::sys::stat::device;

/// A line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: i32,
    /// The one that it lies on.
    pub parent: i32,
    /// Device of the file system.
    pub device: String,
    /// Which folder or file of the file system is seen.
    pub root: String,
    /// Mount point.
    pub at: String,
    /// Options of the mount.
    pub options: String,
    /// How mounts propagate.
    pub propagation: String,
    /// Type of the file system.
    pub file_system: String,
    /// What it was mounted from: of a file system in memory a name that means nothing.
    pub from: String,
    /// Options of the file system.
    pub data: String,
}

impl Mount {
    /// From a line; `None`: it is none.
    pub fn parse(line: &str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let fields: Vec<&str> = mount.split(' ').collect();
        let of_file_system: Vec<&str> = file_system.split(' ').collect();
        let [id, parent, device, root, at, options, propagation @ ..] = fields.as_slice() else {
            return None;
        };
        Some(Self {
            id: id.parse().ok()?,
            parent: parent.parse().ok()?,
            device: (*device).to_owned(),
            root: plain(root),
            at: plain(at),
            options: (*options).to_owned(),
            propagation: propagation.join(" "),
            file_system: (*of_file_system.first()?).to_owned(),
            from: plain(of_file_system.get(1).copied().unwrap_or_default()),
            data: (*of_file_system.last()?).to_owned(),
        })
    }

    /// Its device as `makedev` packs it.
    pub fn number(&self) -> Option<u64> {
        let (major, minor) = self.device.split_once(':')?;
        Some(device(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// Mounted file systems of huge pages: device, as `makedev` packs it, and bytes of a page (fs/hugetlbfs/inode.c,
/// hugetlbfs_show_options).
pub fn huge(mountinfo: &str) -> HashMap<u64, u64> {
    let mounts = mountinfo.lines().filter_map(Mount::parse);
    let mounts = mounts.filter(|mount| mount.file_system == "hugetlbfs");
    mounts.filter_map(|mount| Some((mount.number()?, page_size(&mount.data)?))).collect()
}

/// `pagesize=2M`, with K or M for the unit.
fn page_size(data: &str) -> Option<u64> {
    let size = data.split(',').find_map(|option| option.strip_prefix("pagesize="))?;
    let (number, unit) = size.split_at_checked(size.len().checked_sub(1)?)?;
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|size| size.is_power_of_two())
}

/// A path whose blanks and backslashes mountinfo has written as octal numbers.
fn plain(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &others[3..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The flag of mount(2) that an option stands for; `None`: it is another one's.
pub fn flag(option: &str) -> Option<libc::c_ulong> {
    Some(match option {
        "rw" => 0,
        "ro" => libc::MS_RDONLY,
        "nosuid" => libc::MS_NOSUID,
        "nodev" => libc::MS_NODEV,
        "noexec" => libc::MS_NOEXEC,
        "noatime" => libc::MS_NOATIME,
        "nodiratime" => libc::MS_NODIRATIME,
        "relatime" => libc::MS_RELATIME,
        _ => return None,
    })
}

/// Flags of mount(2) by the options of a mount; `None`: there is another one among them.
pub fn flags(options: &str) -> Option<libc::c_ulong> {
    let mut flags = 0;
    for option in options.split(',') {
        flags |= flag(option)?;
    }
    let by_time = libc::MS_NOATIME | libc::MS_RELATIME;
    Some(if flags & by_time == 0 { flags | libc::MS_STRICTATIME } else { flags })
}

/// A path relative to a folder, beginning with a slash; empty: that folder. `None`: it is not below.
pub fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    match (path == folder, folder) {
        (true, _) => Some(""),
        (false, "/") => Some(path),
        (false, _) => path.strip_prefix(folder).filter(|rest| rest.starts_with('/')),
    }
}

/// What [`below`] has told apart.
pub fn joined(folder: &str, rest: &str) -> String {
    match (folder, rest) {
        (_, "") => folder.to_owned(),
        ("/", _) => rest.to_owned(),
        _ => format!("{folder}{rest}"),
    }
}

/// The mounts of a namespace, as they lie on each other.
#[derive(Debug)]
pub struct Mounts {
    /// All of them.
    pub all: Vec<Mount>,
    /// Places by the one that they lie on.
    children: BTreeMap<usize, Vec<usize>>,
    /// The lowest.
    pub root: usize,
}

impl Mounts {
    /// From the text of mountinfo; `None`: it makes no tree.
    pub fn parse(text: &str) -> Option<Self> {
        let all: Vec<Mount> = text.lines().map(Mount::parse).collect::<Option<_>>()?;
        let places: BTreeMap<i32, usize> =
            all.iter().enumerate().map(|(place, mount)| (mount.id, place)).collect();
        let mut children: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut root = None;
        for (place, mount) in all.iter().enumerate() {
            match places.get(&mount.parent).filter(|parent| **parent != place) {
                Some(parent) => children.entry(*parent).or_default().push(place),
                None if root.is_none() && mount.at == "/" => root = Some(place),
                None => return None,
            }
        }
        Some(Self { all, children, root: root? })
    }

    /// Those that lie on one.
    pub fn children(&self, place: usize) -> &[usize] {
        self.children.get(&place).map_or(&[], Vec::as_slice)
    }

    /// The one that a path leads to, without symbolic links.
    pub fn shown_at(&self, path: &str) -> usize {
        let mut place = self.root;
        loop {
            let at = &self.all[place].at;
            let on = self.children(place).iter().filter(|child| {
                let child = &self.all[**child].at;
                below(path, child).is_some() && below(child, at).is_some()
            });
            match on.min_by_key(|child| self.all[**child].at.len()) {
                Some(child) => place = *child,
                None => return place,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "1 0 8:1 / / rw,relatime - ext4 /dev/a rw\n\
        2 1 0:5 / /dev rw,nosuid shared:3 - devtmpfs none rw,mode=755\n\
        3 2 0:6 / /dev/pts rw - devpts none rw\n\
        4 3 0:7 / /dev/pts rw - devpts none rw\n\
        5 1 0:8 /a\\040b /mnt/x ro - tmpfs none rw\n";

    #[test]
    fn lines_are_read() {
        let mounts = Mounts::parse(TEXT).unwrap();
        assert_eq!((mounts.all[1].propagation.as_str(), mounts.all[1].id), ("shared:3", 2));
        assert_eq!(mounts.all[4].root, "/a b");
        assert_eq!(mounts.all[1].data, "rw,mode=755");
        assert_eq!(mounts.children(0), [1, 4]);
        assert!(Mounts::parse("").is_none());
        assert!(Mounts::parse("1 0 8:1 / / rw").is_none());
    }

    #[test]
    fn the_upper_one_is_shown() {
        let mounts = Mounts::parse(TEXT).unwrap();
        assert_eq!(mounts.shown_at("/etc"), 0);
        assert_eq!(mounts.shown_at("/dev/null"), 1);
        assert_eq!(mounts.shown_at("/dev/pts"), 3);
        assert_eq!(mounts.shown_at("/dev/pts/1"), 3);
        assert_eq!(mounts.shown_at("/development"), 0);
        assert_eq!(mounts.shown_at("/mnt/x"), 4);
    }

    #[test]
    fn options_have_flags() {
        assert_eq!(flags("ro,relatime"), Some(libc::MS_RDONLY | libc::MS_RELATIME));
        assert_eq!(flags("rw"), Some(libc::MS_STRICTATIME));
        assert_eq!(flags("rw,idmapped"), None);
    }
}
