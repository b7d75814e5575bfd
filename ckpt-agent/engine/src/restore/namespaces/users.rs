//! A user namespace within another one of the job's own. Whoever writes its maps must be in it, or in the one around it.

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{IdRange, NamespaceContent};
use super::super::super::trace::Remote;

/// Has the process that has made one write its maps, in numbers of the one around it. `folder`: its descriptor of
/// /proc/self/ns.
pub(super) fn map(
    remote: &mut Remote<'_>,
    folder: u64,
    content: &NamespaceContent,
    around: &NamespaceContent,
) -> Result<()> {
    let odd = || EngineError::Damaged("namespaces: one within another that maps others".to_owned());
    let (
        NamespaceContent::User { uids, gids, may_set_groups },
        NamespaceContent::User { uids: outer_uids, gids: outer_gids, .. },
    ) = (content, around)
    else {
        return Err(odd());
    };
    if !may_set_groups {
        write(remote, folder, "setgroups", "deny")?;
    }
    for (file, ranges, outer) in [("uid_map", uids, outer_uids), ("gid_map", gids, outer_gids)] {
        let lines: Option<String> = ranges.iter().map(|range| line(*range, outer)).collect();
        match lines.ok_or_else(odd)? {
            lines if lines.is_empty() => {}
            lines => write(remote, folder, file, &lines)?,
        }
    }
    Ok(())
}

/// A line of a map, by what the namespace around it calls the numbers; `None`: it has none for them.
fn line(IdRange(inside, outside, count): IdRange, around: &[IdRange]) -> Option<String> {
    let number = around.iter().find_map(|IdRange(first, start, length)| {
        let from = outside.checked_sub(*start)?;
        (from.checked_add(count)? <= *length).then(|| first.checked_add(from))?
    })?;
    Some(format!("{inside} {number} {count}\n"))
}

fn write(remote: &mut Remote<'_>, folder: u64, file: &str, text: &str) -> Result<()> {
    let start = remote.scratch_data()?;
    let path = format!("../{file}\0");
    let at = start + path.len() as u64;
    remote.memory().write(start, format!("{path}{text}").as_bytes())?;
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as u64;
    let fd = remote.call("openat", libc::SYS_openat, &[folder, start, flags, 0])?;
    let written = remote.call("write", libc::SYS_write, &[fd, at, text.len() as u64]);
    remote.call("close", libc::SYS_close, &[fd])?;
    written.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_around() {
        let around = [IdRange(0, 1000, 1), IdRange(10, 2000, 5)];
        let of = |range: IdRange| line(range, &around);
        assert_eq!(of(IdRange(1000, 1000, 1)).as_deref(), Some("1000 0 1\n"));
        assert_eq!(of(IdRange(0, 2003, 2)).as_deref(), Some("0 13 2\n"));
        for other in [IdRange(0, 0, 1), IdRange(0, 1000, 2), IdRange(0, 2003, u32::MAX)] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }
}
