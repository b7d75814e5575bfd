//! What commands print.

use crate::failure::Failure;
use serde::Serialize;
use std::io::Write;
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

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::of("write JSON", error))?;
    print(&(text + "\n"))
}
