//! The encrypted connections of a cluster: TLS 1.3, with certificates on both sides from the first
//! message on.
//!
//! ```text
//! client                                   server
//!   TLS handshake: both show a certificate and prove its key
//!   Greeting  ------------------------------>  who is it? (certificate, list of members)
//!   <------------------------------  Reply: welcome, joined, renewed, or refused with a reason
//!   frames of the conversation's own messages, both ways
//! ```
//!
//! A frame is a header (one message as JSON) and a body of raw bytes, each under a limit:
//!
//! ```text
//! u32 length of the header | u32 length of the body | header | body        (big endian)
//! ```
//!
//! A certificate of the cluster's [`Authority`] names a [`Role`] and, for agents, a node. One that
//! joins has none yet: it shows one signed by itself, may say nothing but
//! [`Greeting::Join`], and gets the key that it has just proved certified if its [`Token`] is good.
//! A member is known by its key, not by its certificate, which runs out. When the coordinator has renewed one
//! ([`Reply::Renewed`]), or has exchanged the authority, the member is the same as before for all others.
//! Refusals are sent as messages after the handshake and not as alerts of TLS, so that both sides
//! can say why.

mod acceptor;
mod authority;
mod command_socket;
mod credentials;
mod crypto;
mod discovery;
mod error;
mod frame;
mod greeting;
mod identity;
mod lines;
mod outbox;
mod peers;
mod places;
mod precedence;
mod refusals;
mod seal;
mod successor;
mod token;
mod verify;

pub use acceptor::{Acceptor, Guest};
pub use authority::{Authorities, Authority, CertifiedNode};
pub use command_socket::{AnswerQueue, Audience, ClientEvent, CommandSocket, bind};
pub use credentials::Credentials;
pub use crypto::random;
pub use discovery::{DISCOVERY_AUTHORITY, DISCOVERY_SERVICE};
pub use error::{RefusalKind, TransportError};
pub use frame::{
    Connection, FrameReceiver, FrameSender, MAX_BODY, MAX_HEADER, Taken, encode, take,
};
pub use greeting::{Greeting, Reply};
pub use identity::Identity;
pub use lines::{LineError, Lines, LongLines, MAX_FIRST};
pub use outbox::{Outbox, OutboxError, Written};
pub use peers::{Arrival, Members, PeerConnection, PeerDoor, SuccessorConnection};
pub use places::{Place, PlaceLimits, Places, source};
pub use precedence::Precedence;
pub use refusals::Refusals;
pub use seal::{Seal, Sealer, Trust};
pub use successor::Successor;
pub use token::{Secret, Token, TokenError};
pub use verify::{Fingerprint, Holder, Role, Shown};

/// The port of a coordinator that is told no other.
pub const DEFAULT_PORT: u16 = 7070;

/// The port of an agent that is told no other, as long as nobody else has it. It is below those that kernels give to
/// connections, and those by which processes that have moved are known.
pub const DEFAULT_AGENT_PORT: u16 = 17_070;

/// The first byte of a TLS connection: a record of type handshake (RFC 8446, section 5.1). Agents tell by it what a
/// connection is for.
pub const TLS_HANDSHAKE: u8 = 22;
