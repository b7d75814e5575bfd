//! A restore makes contexts again, where they were.

use super::super::arch::{Call, calls};
use super::super::error::{EngineError, Result};
use super::super::graph::{Area, Backing, BlobId, ProcessImage};
use super::super::objects::RestoreContext;
use super::super::sys::page::page_size;
use super::super::sys::{abi, processors};
use super::super::trace::{Batch, Remote};
use super::ring::{HEADER, Head, places_of, requests_for};
use super::unfit;
use super::worker::Worker;

/// Makes the contexts of a process whose memory is there, but for these.
///
/// # Errors
/// A machine that has no such context, or no room for more requests; failed calls.
pub fn make(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let wanted: Vec<(&Area, u32, BlobId)> = image
        .areas
        .iter()
        .filter_map(|area| match area.backing {
            Backing::Aio { head, events, .. } => Some((area, head, events)),
            _ => None,
        })
        .collect();
    // So that none comes to lie where another belongs.
    for (area, ..) in &wanted {
        let Call { number, arguments } = taken(area);
        remote.call("mmap", number, &arguments)?;
    }
    let mut batch = Batch::new();
    for (area, head, events) in &wanted {
        make_one(remote, image, area, *head, context.blob(*events)?)?;
        let length = area.end - area.start;
        for value in &area.advice.advise {
            batch.add(libc::SYS_madvise, &[area.start, length, *value as u64]);
        }
        if area.advice.locked {
            batch.add(libc::SYS_mlock, &[area.start, length]);
        }
    }
    // Advice changes no content.
    remote.run(&batch).map(drop)
}

/// Takes the place of an area.
fn taken(area: &Area) -> Call {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | abi::MAP_FIXED_NOREPLACE;
    let length = area.end - area.start;
    calls::map(area.start, length, libc::PROT_NONE as u64, flags as u64, u64::MAX, 0)
}

fn make_one(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    area: &Area,
    head: u32,
    events: Vec<u8>,
) -> Result<()> {
    let length = area.end - area.start;
    let places = places_of(length).ok_or_else(|| unfit(image.pid))?;
    let made = set_up(remote, image, places)?;
    let mut bytes = [0; HEADER];
    remote.memory().read(made, &mut bytes)?;
    // On a machine that does not tell its processors.
    Head::parse(&bytes, length).ok_or_else(|| unfit(image.pid))?;
    let none = || EngineError::odd("io_setup", "a context that is none");
    let mut worker = Worker::begin(remote, made, length, places)?.ok_or_else(none)?;
    worker.release()?;
    let turned = worker.turn(head, events)?;
    worker.end()?;
    if turned.head != head {
        return Err(EngineError::odd(
            "a new ring of asynchronous input and output",
            "it has turned",
        ));
    }
    let arguments = [made, length, length, abi::MREMAP_TO, area.start];
    remote.call("mremap", libc::SYS_mremap, &arguments)?;
    // It is known by its new address.
    remote.call("io_submit", libc::SYS_io_submit, &[area.start, 0, 0]).map(drop)
}

/// A new context, somewhere.
fn set_up(remote: &mut Remote<'_>, image: &ProcessImage, places: u32) -> Result<u64> {
    let processors = processors::possible().unwrap_or(1);
    let requests = requests_for(places, processors, page_size());
    let requests = requests.ok_or_else(|| unfit(image.pid))?;
    let at = remote.scratch_data()?;
    remote.memory().write(at, &[0; size_of::<u64>()])?;
    let answer = remote.raw(libc::SYS_io_setup, &[u64::from(requests), at])?;
    if answer == -i64::from(libc::EAGAIN) {
        return Err(EngineError::Unfit {
            what: format!(
                "this machine has no room for the {requests} requests of asynchronous input and output that process {} \
                 may make",
                image.pid
            ),
            way_out: "raise fs.aio-max-nr (sysctl)".into(),
        });
    }
    remote.checked("io_setup", answer)?;
    let mut address = [0; size_of::<u64>()];
    remote.memory().read(at, &mut address)?;
    Ok(u64::from_ne_bytes(address))
}
