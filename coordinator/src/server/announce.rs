//! Announces the coordinator on the networks that it listens on, by multicast DNS.

use super::ServeError;
use mdns_sd::{ServiceDaemon, ServiceInfo};
use protocol::transport::{DISCOVERY_AUTHORITY, DISCOVERY_SERVICE, Fingerprint};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long the farewell may take.
const FAREWELL: Duration = Duration::from_millis(300);

/// An announcement, answered by a thread of its own until this is dropped.
pub struct Announcement {
    daemon: ServiceDaemon,
    name: String,
}

impl Announcement {
    /// Announces that the coordinator of this authority listens at `address`; where that is
    /// unspecified, at all addresses of the machine, as they come and go.
    ///
    /// # Errors
    /// Where the multicast port can't be used.
    pub fn begin(address: SocketAddr, authority: &Fingerprint) -> Result<Self, ServeError> {
        let failed = |error: mdns_sd::Error| ServeError::Io {
            action: "announce the coordinator".to_owned(),
            source: io::Error::other(error.to_string()),
        };
        let daemon = ServiceDaemon::new().map_err(failed)?;
        let authority = authority.to_string();
        let short: String =
            authority.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
        // A host name of its own: the machine's may be announced by another program.
        let host = format!("ckptd-{short}.local.");
        let properties = [(DISCOVERY_AUTHORITY, authority.as_str())];
        let ip: &[IpAddr] = if address.ip().is_unspecified() { &[] } else { &[address.ip()] };
        let instance = format!("ckptd {short}");
        let info = ServiceInfo::new(
            DISCOVERY_SERVICE,
            &instance,
            &host,
            ip,
            address.port(),
            &properties[..],
        )
        .map_err(failed)?;
        let info = if ip.is_empty() { info.enable_addr_auto() } else { info };
        let name = info.get_fullname().to_owned();
        daemon.register(info).map_err(failed)?;
        Ok(Self { daemon, name })
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if let Ok(done) = self.daemon.unregister(&self.name) {
            let _ = done.recv_timeout(FAREWELL);
        }
        if let Ok(done) = self.daemon.shutdown() {
            let _ = done.recv_timeout(FAREWELL);
        }
    }
}
