//! What commands print.

use crate::failure::Failure;
use serde::Serialize;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The command by which a job is restarted.
pub fn resume_command(dir: Option<&Path>, name: &str) -> String {
    match dir {
        Some(dir) => format!("ckptd restart {name} --dir {}", dir.display()),
        None => format!("ckptd restart {name}"),
    }
}

/// Prints text, or says that it could not.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a file, which is there as a whole or as it was before.
///
/// # Errors
/// Which one can't be written, and why.
pub fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let is_other = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    if is_other || std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        // A device or a pipe stays what it is, and a link leads where it leads.
        return std::fs::write(path, bytes);
    }
    let before = std::fs::metadata(path).ok();
    let mode = before.map_or(0o644, |found| found.permissions().mode() & 0o777);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(mode))
        .tempfile_in(folder.unwrap_or_else(|| Path::new(".")))?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::of("write JSON", error))?;
    print(&(text + "\n"))
}
