//! DMTCP's coordinator protocol: unmodified DMTCP programs as agents of ours.
//!
//! - [`wire`]: messages, byte for byte, with limits.
//! - [`address`]: the socket addresses that workers publish.
//! - [`store`]: the key-value store by which they find each other.
//! - [`machine`]: what a coordinator of DMTCP's processes decides; no I/O.
//! - [`places`]: where images are kept and restarted; no I/O.
//! - [`script`]: the restart script.
//! - [`server`]: the port.
//! - [`names`]: ckptd called by one of DMTCP's names.
//! - [`images`]: what is kept of a job's checkpoints.
//! - [`cluster`]: the nodes of a cluster whose coordinator serves the port.
//!
//! A coordinator has one *computation* at a time, which is all processes that are connected to it. DMTCP knows
//! no authentication: who may connect at all is the server's business.

pub mod address;
pub mod cluster;
pub mod images;
pub mod machine;
pub mod names;
pub mod places;
pub mod script;
pub mod server;
pub mod store;
pub mod wire;

/// DMTCP's port, where no other is asked for.
pub const DEFAULT_PORT: u16 = 7779;
