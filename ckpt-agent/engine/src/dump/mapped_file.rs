//! Files that processes have mapped, opened for their content.

use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use super::super::error::Result;
use super::super::names;
use super::super::objects::DumpContext;
use super::super::proc::Mapping;

/// The file that a process has mapped, where it can be opened.
///
/// # Errors
/// The user's rights can't be taken on.
pub fn open(
    host_pid: i32,
    mapping: &Mapping,
    context: &DumpContext,
) -> Result<Option<(File, Metadata)>> {
    let (path, deleted) = mapping.path();
    let open = |path: String| {
        // Whatever the job has put there by now must not make this wait.
        let mut file = File::options();
        file.read(true).custom_flags(libc::O_NONBLOCK);
        let file = file.open(names::path(&path)).ok()?;
        let metadata = file.metadata().ok()?;
        (metadata.ino() == mapping.inode && metadata.is_file()).then_some((file, metadata))
    };
    if !deleted {
        // By now the name may lead to something that the user can't read.
        let _acting = context.act_as_user()?;
        let found = open(format!("{}{path}", context.root_of(host_pid)));
        if found.is_some() {
            return Ok(found);
        }
    }
    // What is mapped can be read by whoever has it mapped.
    let (start, end) = (mapping.start, mapping.end);
    Ok(open(format!("/proc/{host_pid}/map_files/{start:x}-{end:x}")))
}
