//! Connections that could not be made, where the program has not been told yet.

use super::super::super::error::Result;
use super::{DumpContext, Probe, tcp_info};

/// Whether the connection of a socket whose error waits to be told was never made, so that the error is most likely
/// ECONNREFUSED (net/ipv4/tcp_input.c, tcp_reset). Nobody is told which it is without taking it. What a connection once
/// made leaves in struct tcp_info: its options (offset 5), its round-trip time (68).
pub(super) fn was_never_made(probe: &Probe, context: &mut DumpContext) -> Result<bool> {
    let info = tcp_info(probe)?;
    let word = |at: usize| info.get(at..at + 4).map(|bytes| bytes != [0; 4]);
    let once_made = info.get(5) != Some(&0) || word(68) != Some(false);
    // Segments that have come in (140). Else it was a router, or the time that was over.
    if !once_made && word(140) == Some(false) {
        context.warn(format!(
            "process {} ({}), descriptor {}: a TCP connection could not be made; after a restart the error that the \
             program has not fetched yet is ECONNREFUSED, whatever it was",
            probe.pid, probe.comm, probe.fd
        ));
    }
    Ok(!once_made)
}
