//! How a coordinator is found by multicast DNS (RFC 6762, RFC 6763). What is announced is only where to
//! look: who answers there must still show the certificate of the cluster's authority.

/// The type of the service that a coordinator announces.
pub const DISCOVERY_SERVICE: &str = "_ckptd._tcp.local.";

/// The property of the announcement that tells the authority's fingerprint.
pub const DISCOVERY_AUTHORITY: &str = "authority";
