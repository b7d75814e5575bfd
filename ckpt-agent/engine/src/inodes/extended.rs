//! Extended attributes and access control lists of files that travel (xattr(7), acl(5)). What gives privileges
//! (security.capability), and what only root may see (trusted.*), does not return; what the machine sets by itself, such
//! as labels, is not touched.

use std::ffi::{CStr, CString};
use std::os::fd::AsFd;

use nix::errno::Errno;

use super::super::error::{EngineError, Result};
use super::super::graph::ExtendedAttribute;
use super::super::objects::{DumpContext, RestoreContext};
use super::super::sys::xattr;

/// Lists of who may do what with a file, and with what will be made in a folder.
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
/// What does not return, and means something.
const LOST: [&str; 2] = ["trusted.", "security.capability"];

fn returns(name: &str) -> bool {
    name.starts_with("user.") || LISTS.contains(&name)
}

/// Takes the attributes of an open file, or folder, into the image. `None`: it can have none, or they can't be read.
pub fn take(
    file: impl AsFd,
    shown: &str,
    context: &mut DumpContext,
) -> Option<Vec<ExtendedAttribute>> {
    let names = xattr::list(&file).ok()?;
    let (mut taken, mut lost) = (Vec::new(), Vec::new());
    for name in names {
        let text = name.to_string_lossy().into_owned();
        if LOST.iter().any(|class| text.starts_with(class)) {
            lost.push(text);
        } else if returns(&text) {
            let value = name.to_str().ok().and_then(|_| xattr::get(&file, &name).ok());
            match value.filter(|value| context.has_room_for(value.len() as u64)) {
                Some(value) => {
                    taken.push(ExtendedAttribute { name: text, value: context.keep(value) })
                }
                None => lost.push(text),
            }
        }
    }
    if let Some(first) = lost.first() {
        let others = match lost.len() {
            1 => String::new(),
            more => format!(" and {} more", more - 1),
        };
        context.warn(format!(
            "{shown}: its attribute {first}{others} will be missing after a restart"
        ));
    }
    Some(taken)
}

/// Gives a file exactly these attributes, of those that return. What the kernel does not take is told in words.
///
/// # Errors
/// [`EngineError::Damaged`].
pub fn put(
    file: impl AsFd,
    attributes: &[ExtendedAttribute],
    context: &RestoreContext<'_>,
) -> Result<Option<String>> {
    let mut failed: Option<(String, Errno)> = None;
    for name in xattr::list(&file).unwrap_or_default() {
        let text = name.to_string_lossy();
        if returns(&text) && !attributes.iter().any(|attribute| attribute.name == *text) {
            if let Err(errno) = xattr::remove(&file, &name) {
                failed.get_or_insert((text.into_owned(), errno));
            }
        }
    }
    for attribute in attributes {
        let name = CString::new(attribute.name.as_str()).ok().filter(|_| returns(&attribute.name));
        let Some(name) = name else {
            return Err(EngineError::Damaged(format!("an attribute named {:?}", attribute.name)));
        };
        let value = context.blob(attribute.value)?;
        if let Err(errno) = put_one(&file, &name, &value) {
            failed.get_or_insert((attribute.name.clone(), errno));
        }
    }
    Ok(failed.map(|(name, errno)| format!("has not its attribute {name} ({})", errno.desc())))
}

fn put_one(file: impl AsFd, name: &CStr, value: &[u8]) -> nix::Result<()> {
    if xattr::get(&file, name).is_ok_and(|known| known == value) {
        return Ok(());
    }
    xattr::set(file, name, value)
}
