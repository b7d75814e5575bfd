//! Registrations of signal descriptors in epoll instances. Such a registration listens to the signals of the process that makes it,
//! whoever waits (fs/signalfd.c, signalfd_poll): each is made by a process that holds both, and not by the init.

use std::mem::offset_of;

use super::super::error::Result;
use super::super::graph::ProcessImage;
use super::super::objects::{OfSignals, RestoreContext, registrations_of_signals};
use super::super::trace::Remote;
use super::completing::Furnished;
use super::image::Image;

/// Makes them. Of several holders it is the first one that has made it, most likely: a child inherits what its parent had.
///
/// # Errors
/// Failed calls.
pub fn register(
    furnished: &mut [Furnished<'_>],
    image: &Image,
    context: &mut RestoreContext<'_>,
) -> Result<()> {
    for one in registrations_of_signals(&image.graph.files, context) {
        // Parents come before their children.
        let holder = image.graph.processes.iter().find_map(|node| {
            furnished.iter().position(|process| {
                process.image.pid == node.pid && Held::of(process.image, &one).is_some()
            })
        });
        let made = match holder.and_then(|place| furnished.get_mut(place)) {
            Some(holder) => register_in(holder, &one)?,
            None => false,
        };
        // Nobody can wait there, or the number can't be had.
        if !made {
            one.register_here(context)?;
        }
    }
    Ok(())
}

/// The numbers under which a process holds an epoll instance and the target of a registration.
struct Held {
    epoll: i32,
    target: i32,
    /// Something else has the number of the registration.
    is_taken: bool,
}

impl Held {
    fn of(image: &ProcessImage, one: &OfSignals<'_>) -> Option<Self> {
        let wanted = one.registration.fd;
        let with = |file| image.descriptors.iter().filter(move |own| own.file == file);
        let epoll = with(one.epoll).next()?.fd;
        let target = with(one.target).find(|own| own.fd == wanted);
        let target = target.or_else(|| with(one.target).next())?.fd;
        let is_taken = target != wanted && image.descriptors.iter().any(|own| own.fd == wanted);
        Some(Self { epoll, target, is_taken })
    }
}

/// Whether it could be made there.
fn register_in(holder: &mut Furnished<'_>, one: &OfSignals<'_>) -> Result<bool> {
    let Some(Held { epoll, target, is_taken }) = Held::of(holder.image, one) else {
        return Ok(false);
    };
    let wanted = one.registration.fd;
    let mut remote = holder.remote()?;
    if target == wanted {
        add(&mut remote, epoll, wanted, one)?;
        return Ok(true);
    }
    let (target, closing) = (target as u64, libc::O_CLOEXEC as u64);
    let copy = if is_taken {
        // What has the number now may have locks, which it would lose with it. The program can't name the registration by it, either.
        let above = one.highest.saturating_add(1) as u64;
        let arguments = [target, libc::F_DUPFD_CLOEXEC as u64, above];
        remote.raw(libc::SYS_fcntl, &arguments)?
    } else {
        remote.raw(libc::SYS_dup3, &[target, wanted as u64, closing])?
    };
    let Ok(copy) = u32::try_from(copy) else { return Ok(false) };
    let added = add(&mut remote, epoll, copy as i32, one);
    remote.call("close", libc::SYS_close, &[u64::from(copy)])?;
    added.map(|()| true)
}

/// Size of what epoll_ctl(2) reads.
const EVENT: usize = size_of::<libc::epoll_event>();

fn add(remote: &mut Remote<'_>, epoll: i32, number: i32, one: &OfSignals<'_>) -> Result<()> {
    let at = remote.scratch_data()?;
    let control = |remote: &mut Remote<'_>, operation: i32, events: u32| -> Result<()> {
        remote.memory().write(at, &event(events, one.registration.data))?;
        let arguments = [epoll as u64, operation as u64, number as u64, at];
        remote.call("epoll_ctl", libc::SYS_epoll_ctl, &arguments).map(drop)
    };
    let events = one.registration.events;
    let Some(firing) = one.registration.fires_once_more() else {
        return control(remote, libc::EPOLL_CTL_ADD, events);
    };
    control(remote, libc::EPOLL_CTL_ADD, firing)?;
    let arguments = [epoll as u64, at, 1, 0, 0, size_of::<u64>() as u64];
    if remote.call("epoll_pwait", libc::SYS_epoll_pwait, &arguments)? == 0 {
        control(remote, libc::EPOLL_CTL_MOD, events)?;
    }
    Ok(())
}

/// struct epoll_event, which is packed on some processors.
fn event(events: u32, data: u64) -> [u8; EVENT] {
    let mut bytes = [0; EVENT];
    let at = offset_of!(libc::epoll_event, u64);
    bytes[..4].copy_from_slice(&events.to_ne_bytes());
    bytes[at..at + 8].copy_from_slice(&data.to_ne_bytes());
    bytes
}
