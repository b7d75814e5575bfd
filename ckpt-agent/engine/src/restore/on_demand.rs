//! Which memory of a restored job is filled while that runs ([`super::super::demand`]), and its watch.

use std::collections::BTreeMap;

use super::super::demand::{Feeder, Wish};
use super::super::dump::pages::Pagemap;
use super::super::error::{EngineError, Result};
use super::super::graph::{Area, Backing, Graph, ProcessImage, Protection, WINDOW_PAGES};
use super::super::objects::Object;
use super::super::sys::pidfd::{self, PidFd};
use super::super::sys::trial::Call;
use super::super::sys::userfault::MissingPages;
use super::super::tracking::Ranges;
use super::Helper;
use super::common::{Common, within};

/// What is filled later, of each process by its number here.
#[derive(Debug, Default)]
pub struct Later(BTreeMap<i32, Ranges>);

impl Later {
    /// Which of 64 pages of a process from an address on are filled later: bit N is page N.
    pub fn pages_from(&self, pid: i32, address: u64, page: u64) -> u64 {
        self.0.get(&pid).map_or(0, |ranges| ranges.pages_from(address, page))
    }
}

/// Has all that can be filled later watched, before anything touches it. Where that can't be had nothing is later.
///
/// # Errors
/// Processes that end; the pager's end.
pub(super) fn begin(
    helpers: &mut [Helper<'_>],
    graph: &Graph,
    common: &Common,
    feeder: &mut Feeder,
    page: u64,
) -> Result<Later> {
    let mut later = Later::default();
    let [least_of_job, least_of_process, least_of_area] = Wish::of_environment().least();
    let chosen = helpers.iter().map(|helper| {
        let areas = choose(helper.image, graph, common, (least_of_area, page));
        let bytes: u64 = areas.iter().map(|area| area.bytes).sum();
        if bytes < least_of_process { (Vec::new(), 0) } else { (areas, bytes) }
    });
    let chosen: Vec<(Vec<Watchable>, u64)> = chosen.collect();
    let bytes: u64 = chosen.iter().map(|(_, bytes)| bytes).sum();
    if bytes < least_of_job || !Call::Userfaultfd.may_be_made() {
        return Ok(later);
    }
    for (helper, (areas, _)) in helpers.iter_mut().zip(chosen) {
        if areas.is_empty() {
            continue;
        }
        let watched = watch(helper, &areas, feeder, page)?;
        if !watched.is_empty() {
            later.0.insert(helper.pid, Ranges::of(watched));
        }
    }
    Ok(later)
}

/// An area that can be filled later.
#[derive(Debug, Clone, Copy)]
struct Watchable {
    start: u64,
    end: u64,
    /// Bytes of its content.
    bytes: u64,
}

/// The areas of a process that can be filled later, with so much content at least.
fn choose(
    image: &ProcessImage,
    graph: &Graph,
    common: &Common,
    (least, page): (u64, u64),
) -> Vec<Watchable> {
    // Memory can be watched by one descriptor.
    let watches = |file| matches!(graph.object(file), Some(Object::Userfault(_)));
    let watched = image.descriptors.iter().any(|descriptor| watches(descriptor.file));
    if watched || graph.has_sharers(image.pid) {
        return Vec::new();
    }
    let span = WINDOW_PAGES * page;
    let areas = image.areas.iter().filter(|area| can_wait(area) && !common.has(area));
    let with_bytes = areas.map(|area| {
        let first = image.pages.partition_point(|window| window.address + span <= area.start);
        let windows = image.pages[first..].iter().take_while(|window| window.address < area.end);
        let bytes =
            windows.map(|window| window.only(within(area, window.address, page)).bytes(page));
        Watchable { start: area.start, end: area.end, bytes: bytes.sum() }
    });
    with_bytes.filter(|area| area.bytes >= least).collect()
}

/// Whether an area's pages can come one by one, by the first touch of whoever it is.
fn can_wait(area: &Area) -> bool {
    let advice = &area.advice;
    // Of huge pages each would have to come as a whole; what a child is to find wiped must not come to it.
    let special = [libc::MADV_HUGEPAGE, libc::MADV_WIPEONFORK];
    area.backing == Backing::Anonymous
        && !area.shared
        && area.protection.0 & Protection::EXEC == 0
        && !advice.grows_down
        && !advice.locked
        && !advice.sealed
        && !advice.droppable
        && advice.huge.is_none()
        && advice.watched.is_none()
        && advice.guards.is_empty()
        && !advice.advise.iter().any(|value| special.contains(value))
}

/// Has areas of a process watched; which of them are.
fn watch(
    helper: &mut Helper<'_>,
    areas: &[Watchable],
    feeder: &mut Feeder,
    page: u64,
) -> Result<Vec<(u64, u64)>> {
    let (pid, number) = (helper.image.pid, helper.pid);
    let Some(missing) = make(helper)? else { return Ok(Vec::new()) };
    let mut watched = Vec::new();
    for Watchable { start, end, .. } in areas {
        // What can't be is filled at once.
        if missing.watch(*start, *end).is_ok() {
            watched.push((*start, *end));
        }
    }
    if watched.is_empty() {
        return Ok(watched);
    }
    // A page that is there already would be taken for one that has been filled.
    let mut pagemap = Pagemap::of(number, page)?;
    for (start, end) in &watched {
        if !pagemap.stored(*start, *end)?.pages.is_empty() {
            return Err(EngineError::odd(
                format!("memory of process {pid}"),
                format!("a page at {start:#x} before it was filled"),
            ));
        }
    }
    feeder.watch(pid, &missing, pidfd::open(number, 0)?, watched.clone())?;
    Ok(watched)
}

/// A descriptor of missing pages, of which nothing stays in the process.
fn make(helper: &mut Helper<'_>) -> Result<Option<MissingPages>> {
    let process = PidFd::open(helper.pid)?;
    let mut remote = helper.remote()?;
    let number = remote.raw(libc::SYS_userfaultfd, &[MissingPages::FLAGS as u64])?;
    let Ok(number) = u64::try_from(number) else { return Ok(None) };
    let descriptor = process.descriptor(number as i32);
    remote.call("close", libc::SYS_close, &[number])?;
    Ok(MissingPages::begin(descriptor?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Advice;

    fn area(advice: Advice) -> Area {
        let protection = Protection(Protection::READ | Protection::WRITE);
        Area {
            start: 0,
            end: 0x1000,
            protection,
            shared: false,
            backing: Backing::Anonymous,
            advice,
        }
    }

    #[test]
    fn only_plain_memory_of_a_process_s_own_waits() {
        assert!(can_wait(&area(Advice::default())));
        assert!(!can_wait(&Area { shared: true, ..area(Advice::default()) }));
        let code = Protection(Protection::READ | Protection::EXEC);
        assert!(!can_wait(&Area { protection: code, ..area(Advice::default()) }));
        let kernels = Backing::Kernel { name: "[vvar]".into() };
        assert!(!can_wait(&Area { backing: kernels, ..area(Advice::default()) }));
        for advice in [
            Advice { grows_down: true, ..Advice::default() },
            Advice { locked: true, ..Advice::default() },
            Advice { sealed: true, ..Advice::default() },
            Advice { droppable: true, ..Advice::default() },
            Advice { huge: Some(1 << 21), ..Advice::default() },
            Advice { watched: Some(crate::graph::Watched::default()), ..Advice::default() },
            Advice { guards: vec![(0, 0x1000)], ..Advice::default() },
            Advice { advise: vec![libc::MADV_HUGEPAGE], ..Advice::default() },
            Advice { advise: vec![libc::MADV_WIPEONFORK], ..Advice::default() },
        ] {
            assert!(!can_wait(&area(advice)));
        }
        let dumped = Advice { advise: vec![libc::MADV_DONTDUMP], ..Advice::default() };
        assert!(can_wait(&area(dumped)));
    }
}
