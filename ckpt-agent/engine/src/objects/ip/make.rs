//! Makes sockets of IP again.

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::network;
use super::super::super::sys::sockopt;
use super::super::socket_options::Moment;
use super::super::{RestoreContext, Saved, multicast};
use super::{IpSocket, rights, system};

/// All of them: those that share an identifier are bound before what allowed it is cleared again.
pub(super) fn all(all: &[Saved<'_, IpSocket>], context: &mut RestoreContext) -> Result<()> {
    let mut made = Vec::with_capacity(all.len());
    for saved in all {
        made.push((saved, bound(saved.object, context)?));
    }
    for (saved, socket) in made {
        finish(saved.object, &socket, context)?;
        context.park(saved.id, socket.into())?;
    }
    Ok(())
}

fn new(saved: &IpSocket, context: &RestoreContext) -> Result<Socket> {
    let domain = if saved.v6 { Domain::IPV6 } else { Domain::IPV4 };
    if let Some(protocol) = saved.raw {
        let make = || network::socket(domain, Type::RAW, Some(Protocol::from(protocol)));
        return rights::make(rights::Privileged::Raw, make);
    }
    rights::may_ping(context)?;
    let protocol = if saved.v6 { Protocol::ICMPV6 } else { Protocol::ICMPV4 };
    network::socket(domain, Type::DGRAM, Some(protocol)).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPROTONOSUPPORT) => rights::no_ping(),
            _ => system("make", error),
        }
    })
}

fn bound(saved: &IpSocket, context: &mut RestoreContext) -> Result<Socket> {
    let socket = new(saved, context)?;
    let mut failed = saved.options.apply(&socket, saved.kind(), Moment::BeforeBind);
    failed.extend(saved.options.apply(&socket, saved.kind(), Moment::Made));
    saved.options.apply_buffers(&socket);
    saved.options.apply_buffer_lock(&socket);
    warn_of(saved, &failed, context);
    for group in &saved.groups {
        if let Err(error) = multicast::join(&socket, group) {
            context.warn(format!(
                "{}: multicast group {} can't be joined on {} ({error}): it is no member",
                saved.name(),
                group.group,
                group.interface
            ));
        }
    }
    let Some(local) = saved.local else { return Ok(socket) };
    if !context.cluster {
        // The address may come back.
        let _ = sockopt::set_int(&socket, libc::IPPROTO_IP, libc::IP_FREEBIND, 1);
    }
    match socket.bind(&SockAddr::from(local)) {
        Ok(()) => Ok(socket),
        Err(error) if context.cluster || context.force => {
            context.warn(format!(
                "address {local} can't be had ({error}): {} is not bound",
                saved.name()
            ));
            Ok(socket)
        }
        Err(error) => Err(EngineError::Unfit {
            what: format!("{} of the job can't have address {local} again ({error})", saved.name()),
            way_out: "end whoever has it, or use --force to do without".into(),
        }),
    }
}

/// Its peer, its options, and what is shut down.
fn finish(saved: &IpSocket, socket: &Socket, context: &mut RestoreContext) -> Result<()> {
    if let Some(peer) = saved.peer {
        match socket.connect(&SockAddr::from(peer)) {
            // From another machine not everything is in reach.
            Err(error) if context.cluster => context.warn(format!(
                "{}: {peer} can't be reached from here ({error}): it is not connected",
                saved.name()
            )),
            other => other.map_err(|error| system("connect", error))?,
        }
    }
    let failed = saved.options.apply(socket, saved.kind(), Moment::Last);
    warn_of(saved, &failed, context);
    saved.shut.put_back(socket).map_err(|error| system("shut down", error))
}

fn warn_of(saved: &IpSocket, failed: &[&'static str], context: &mut RestoreContext) {
    if !failed.is_empty() {
        context.warn(format!(
            "{}: options not restored, not allowed here: {}",
            saved.name(),
            failed.join(", ")
        ));
    }
}
