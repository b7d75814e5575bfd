//! What sockets belong to.

use std::os::fd::AsFd;

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::sys::related::related;
use super::super::super::sys::stat::identity;
use super::WAY_OUT;

/// SIOCGSKNS (include/uapi/linux/sockios.h): the network namespace of a socket.
const GET_NETWORK: u64 = 0x894c;

/// Refuses a socket that was made in another network namespace than `home`: a restore makes all sockets there.
///
/// # Errors
/// The refusal, without the names of its process and descriptor.
pub fn check_network(socket: impl AsFd, home: u64) -> Result<()> {
    // Who has no rights over the namespace gets no answer: then it is not one that the job has made.
    let Ok(network) = related(socket, GET_NETWORK) else { return Ok(()) };
    let found = nix::sys::stat::fstat(&network);
    let found = found.map_err(|errno| EngineError::system("fstat", "a namespace", errno))?;
    match identity(&found).1 == home {
        true => Ok(()),
        false => {
            Err(Refusal::new("a socket in a network namespace of the job's own", WAY_OUT).into())
        }
    }
}
