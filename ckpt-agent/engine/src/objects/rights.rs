//! Sockets that not everybody may make. An image says what its job had, not what its user may have: such sockets are made with
//! the user's rights, or not at all.

use std::io;

use socket2::Socket;

use super::super::error::{EngineError, Refusal, Result};
use super::super::sys::ping_groups::PingGroups;
use super::super::sys::restrained::{self, NET_RAW, OVER_SOCKET_OPTIONS, Restrained};
use super::{DumpContext, RestoreContext};

/// Sockets that need CAP_NET_RAW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Privileged {
    /// SOCK_RAW of IP.
    Raw,
    /// AF_PACKET
    Packet,
}

impl Privileged {
    fn name(self) -> &'static str {
        match self {
            Self::Raw => "a raw socket",
            Self::Packet => "a packet socket",
        }
    }
}

/// Refuses what no restart could make: a user's program may have got it from somebody with more rights.
///
/// # Errors
/// The refusal; failed capget(2).
pub(super) fn must_return(what: Privileged, context: &DumpContext) -> Result<()> {
    let has = restrained::has(&[NET_RAW])
        .map_err(|errno| EngineError::system("capget", "this thread", errno))?;
    if has && context.user.is_none() {
        return Ok(());
    }
    Err(Refusal::new(
        format!("{}, which only root could make again", what.name()),
        "close it while checkpoints are taken, or run the job as root",
    )
    .into())
}

/// Makes one, with no more rights than the job's user has.
///
/// # Errors
/// [`EngineError::Unfit`] where that user may not; as socket(2).
pub(super) fn make(what: Privileged, make: impl FnOnce() -> io::Result<Socket>) -> Result<Socket> {
    let _restrained = Restrained::further(OVER_SOCKET_OPTIONS)?;
    make().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => EngineError::Unfit {
            what: format!("the job has {}, which its user may not make here", what.name()),
            way_out: "restart it as root (CAP_NET_RAW)".into(),
        },
        _ => EngineError::system("make", what.name(), error),
    })
}

/// Whether the job's user may use ICMP sockets: the kernel asks for the groups of whoever makes one, and this process is root
/// by its own.
///
/// # Errors
/// [`no_ping`] where not.
pub(super) fn may_ping(context: &RestoreContext<'_>) -> Result<()> {
    let Some(user) = &context.user else { return Ok(()) };
    let mut groups = user.groups.iter().copied().chain([user.gid]);
    match PingGroups::here() {
        Some(range) if groups.any(|group| range.has(group)) => Ok(()),
        _ => Err(no_ping()),
    }
}

/// What a restart says where there are no ICMP sockets for the job's user.
pub(super) fn no_ping() -> EngineError {
    EngineError::Unfit {
        what: "the job has an ICMP socket, which its user may not make here".into(),
        way_out: "let one of its user's groups do so (sysctl net.ipv4.ping_group_range)".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::job_init::UserOrder;
    use super::*;

    #[test]
    fn what_a_user_could_not_have_again_is_refused_at_the_checkpoint() {
        let user = UserOrder { uid: 1000, gid: 1000, groups: vec![1000] };
        let context = DumpContext { user: Some(user), ..DumpContext::default() };
        for what in [Privileged::Raw, Privileged::Packet] {
            let refused = must_return(what, &context).unwrap_err().to_string();
            assert!(refused.starts_with(what.name()), "{refused}");
        }
    }

    #[test]
    fn no_more_is_made_for_a_user_than_they_could_make() {
        use socket2::{Domain, Protocol, Type};
        let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(200)));
        if raw().is_err() {
            // Who may make none anyway is no test.
            return;
        }
        make(Privileged::Raw, raw).unwrap();
        let _acting = Restrained::begin(&[]).unwrap();
        let refused = make(Privileged::Raw, raw).unwrap_err();
        assert!(matches!(refused, EngineError::Unfit { .. }), "{refused}");
        assert!(raw().is_ok(), "the right is back");
    }
}
