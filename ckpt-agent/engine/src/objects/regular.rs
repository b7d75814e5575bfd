//! Regular files: either referred to by path, or carried in the image.

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::statfs::fstatfs;
use protocol::launch::FileCheck;
use serde::{Deserialize, Serialize};

use super::super::error::{Refusal, Result};
use super::super::graph::Origin;
use super::super::inodes;
use super::super::sys::abi;
use super::super::sys::stat::{file_system, links};
use super::by_path::ByPath;
use super::carried::Carried;
use super::{
    DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved, in_place, paths, reopen,
};

/// A regular file or memory object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum Regular {
    /// Stays where it is.
    ByPath(ByPath),
    /// Travels.
    Carried(Carried),
}
protocol::tagged!(Regular, "content");

impl Regular {
    fn by_path(&self) -> Option<&ByPath> {
        match self {
            Self::ByPath(file) => Some(file),
            Self::Carried(_) => None,
        }
    }
}

impl ObjectKind for Regular {
    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFREG && probe.link.starts_with('/')
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        if is_secret(probe) {
            let what = "secret memory (memfd_secret), which cannot be read";
            return Err(Refusal::new(what, "run the program without it").into());
        }
        if !paths::leads_to_it_for_user(probe, context)? {
            return Carried::dump(probe, context, false).map(Self::Carried);
        }
        if paths::is_silly_rename(&probe.link) {
            return Carried::dump(probe, context, false).map(Self::Carried);
        }
        if context.huge_page_on(probe.stat.st_dev).is_some() {
            return dump_huge(probe, context);
        }
        if context.is_session_file(&probe.link)
            && !inodes::belongs_to_another(probe.host_pid, probe.stat.st_uid)
        {
            return Carried::dump(probe, context, true).map(Self::Carried);
        }
        ByPath::dump(probe, &probe.link, context).map(Self::ByPath)
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        take_other_names(all, context)?;
        keep_hashes(all, context);
        let mut told = BTreeSet::new();
        for found in all {
            let Self::Carried(file) = &found.object else { continue };
            let Some(inode) = context.inodes.get(file.inode.0 as usize) else { continue };
            let named = matches!(inode.origin, Origin::Named { .. });
            let known = inode.links.len() as u64 + u64::from(named);
            if links(&found.probe.stat) <= known || !told.insert(file.inode.0) {
                continue;
            }
            let path = paths::without_mark(&found.probe.link);
            context.warn(match named {
                true => format!(
                    "{path} has names by which the job does not have it open: those that are gone at a restart are not made again"
                ),
                false => format!(
                    "{path} has lost this name but has others: a restart makes it a file of its own"
                ),
            });
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        let written: BTreeSet<&str> = all
            .iter()
            .filter(|saved| reopen::writable(saved.file.flags))
            .filter_map(|saved| match saved.object {
                Self::ByPath(file) => Some(file.path.as_str()),
                Self::Carried(_) => None,
            })
            .collect();
        in_place::put_back(all.iter().filter_map(|saved| saved.object.by_path()), context)?;
        let mut originals = BTreeSet::new();
        for saved in all {
            let flags = saved.file.flags;
            let fd = match saved.object {
                Self::Carried(file)
                    if file.may_be_original(flags, context) && originals.insert(file.inode.0) =>
                {
                    file.original(flags, context)?
                }
                Self::ByPath(file) => {
                    file.restore(flags, written.contains(file.path.as_str()), context)?
                }
                Self::Carried(file) => file.restore(flags, context)?,
            };
            context.park(saved.id, fd)?;
        }
        Ok(())
    }

    fn when_divided(&self, flags: i32) -> Fate {
        // Bytes written through one copy would be missing in the other.
        let is_written = flags & libc::O_ACCMODE != libc::O_RDONLY;
        match self {
            Self::Carried(_) if is_written => Fate::Undivided,
            _ => Fate::Again,
        }
    }
}

/// Whether it is memory of memfd_secret(2), which its own processes alone can read (mm/secretmem.c).
fn is_secret(probe: &Probe) -> bool {
    /// SECRETMEM_MAGIC (include/uapi/linux/magic.h).
    const SECRET: u64 = 0x5345_434d;
    fstatfs(&probe.copy).is_ok_and(|found| file_system(&found) == SECRET)
}

/// A file of hugetlbfs, which is memory with a name: nobody writes to it but by mapping it.
fn dump_huge(probe: &Probe, context: &mut DumpContext) -> Result<Regular> {
    if inodes::belongs_to_another(probe.host_pid, probe.stat.st_uid) {
        let what = format!("a file of hugetlbfs that belongs to user {}", probe.stat.st_uid);
        return Err(Refusal::new(what, "let the job's user make it").into());
    }
    Carried::dump(probe, context, true).map(Regular::Carried)
}

/// What the job only reads is told by its content at a restart, where the user wants that.
fn keep_hashes(all: &mut [Found<'_, Regular>], context: &mut DumpContext) {
    if context.file_check != FileCheck::Hash {
        return;
    }
    let written = all.iter().filter(|found| reopen::writable(found.flags));
    let written: BTreeSet<(u64, u64)> = written.map(|found| found.probe.inode()).collect();
    for found in all.iter_mut().filter(|found| !written.contains(&found.probe.inode())) {
        let Regular::ByPath(file) = &mut *found.object else { continue };
        if let Err(error) = file.keep_hash(found.probe) {
            context.warn(format!(
                "{} cannot be read ({error}): a restart goes by its time of modification",
                file.path
            ));
        }
    }
}

/// A file that stays where it is may be open by a name, too, that it has lost: it is found by the other one.
fn take_other_names(all: &mut [Found<'_, Regular>], context: &mut DumpContext) -> Result<()> {
    let stay = all.iter().filter_map(|found| {
        found.object.by_path().map(|file| (found.probe.inode(), file.path.clone()))
    });
    let stay: BTreeMap<(u64, u64), String> = stay.collect();
    for found in all {
        let Regular::Carried(file) = &*found.object else { continue };
        let Some(path) = stay.get(&found.probe.inode()) else { continue };
        // What is mapped of it is the file, too, not its copy.
        context.inode_index.retain(|_, known| *known != file.inode);
        *found.object = Regular::ByPath(ByPath::dump(found.probe, path, context)?);
    }
    Ok(())
}
