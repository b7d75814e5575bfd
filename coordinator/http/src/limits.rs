//! How much may be asked for at a time.

use std::time::Duration;

/// Connections; others wait until one ends.
pub const CONNECTIONS: usize = 64;
/// Connections over which no secret was shown: where there are more, the oldest are ended.
pub const STRANGERS: usize = 32;
/// Streams of events: browsers' tabs. Others are turned away.
pub const STREAMS: usize = 16;
/// The head of a request, in bytes; hyper takes no less than 8 KiB.
pub const HEAD: usize = 16 * 1024;
/// What is sent with an order, in bytes; also the longest part of a query that is looked at.
pub const FORM: usize = 4096;
/// Tokens that were made for people and programs, at a time.
pub const TOKENS: usize = 256;
/// The longest name of one, in characters.
pub const LONGEST_NAME: usize = 64;
/// Header lines of a request.
pub const HEADERS: usize = 64;
/// For how long the next request's head may be on its way, counted from the end of the answer before.
pub const IDLE: Duration = Duration::from_secs(15);
/// For how long a client may take nothing of what is sent to it.
pub const STALLED: Duration = Duration::from_secs(15);
/// For how long a connection lasts, and with it a stream: browsers make another.
pub const LIFE: Duration = Duration::from_secs(3600);
/// For how long the coordinator may take to answer.
pub const ANSWER: Duration = Duration::from_secs(10);
/// How often the coordinator is asked while somebody looks.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Of how much time a look takes one part at most.
pub const SHARE: u32 = 20;
/// After how long a log that could not be read is read again.
pub const READ_AGAIN: Duration = Duration::from_secs(60);
/// How often a stream without news says that it is there.
pub const PULSE: Duration = Duration::from_secs(5);
/// Bytes of a job's log that are shown.
pub const LOG: u64 = 64 * 1024;
