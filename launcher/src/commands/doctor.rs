//! `ckptd doctor`.

use super::{print, print_json};
use crate::cli::ListArguments;
use crate::failure::Failure;
use serde_json::json;

pub fn perform(list: ListArguments) -> Result<(), Failure> {
    let kernel = nix::sys::utsname::uname()
        .map_err(|error| Failure::of("ask for the kernel's version", error))?;
    let release = kernel.release().to_string_lossy().into_owned();
    let machine = kernel.machine().to_string_lossy().into_owned();
    if list.json {
        return print_json(&json!({ "kernel": release, "machine": machine }));
    }
    print(&format!("kernel   {release}\nmachine  {machine}\n"))
}
