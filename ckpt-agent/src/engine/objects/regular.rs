//! Regular files: either referred to by path, or carried in the image.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::error::{Refusal, Result};
use super::super::inodes;
use super::super::sys::abi;
use super::by_path::ByPath;
use super::carried::Carried;
use super::{DumpContext, Probe, RestoreContext, Room, Saved, in_place, paths, reopen};

/// A regular file or memory object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "content")]
pub enum Regular {
    /// Stays where it is.
    ByPath(ByPath),
    /// Travels.
    Carried(Carried),
}

impl Regular {
    fn by_path(&self) -> Option<&ByPath> {
        match self {
            Self::ByPath(file) => Some(file),
            Self::Carried(_) => None,
        }
    }
}

impl Room for Regular {
    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFREG && probe.link.starts_with('/')
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        if probe.link.starts_with("/secretmem") && probe.stat.st_nlink == 0 {
            let what = "secret memory (memfd_secret) cannot be read";
            return Err(Refusal::new(what, "run the program without it").into());
        }
        if !paths::leads_to_it(probe) {
            if probe.stat.st_nlink > 0 {
                context.warn(format!(
                    "{} has lost this name but has others: a restart makes it a file of its own",
                    paths::without_mark(&probe.link)
                ));
            }
            return Carried::dump(probe, context, false).map(Self::Carried);
        }
        if paths::is_silly_rename(&probe.link) {
            return Carried::dump(probe, context, false).map(Self::Carried);
        }
        if context.is_session_file(&probe.link)
            && !inodes::belongs_to_another(probe.host_pid, probe.stat.st_uid)
        {
            if probe.stat.st_nlink > 1 {
                context.warn(format!(
                    "{} has other names, too: a restart makes it a file of its own",
                    probe.link
                ));
            }
            return Carried::dump(probe, context, true).map(Self::Carried);
        }
        ByPath::dump(probe, context).map(Self::ByPath)
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
        for saved in all {
            let flags = saved.file.flags;
            let fd = match saved.object {
                Self::ByPath(file) => {
                    file.restore(flags, written.contains(file.path.as_str()), context)?
                }
                Self::Carried(file) => file.restore(flags, context)?,
            };
            context.park(saved.id, fd)?;
        }
        Ok(())
    }
}
