//! The command tree: one order to many agents and their answers put together, each in `ceil(log2 n)` hops,
//! as state machines without I/O.
//!
//! - [`shape`]: who calls whom.
//! - [`member`]: what an agent does: [`Member`].
//! - [`work`]: a member's own part of an operation: [`Works`].
//! - [`root`]: what the coordinator does: [`Root`].
//!
//! **Hops.** In one hop each member sends at most one message and takes at most one. The operation
//! reaches the last of `n` members `ceil(log2 n)` hops after the first one has it, and the last answer is with
//! the first member `ceil(log2 n)` hops after all have done their part. The coordinator stands above the first
//! member: one hop more on each way.
//!
//! **Lines.** Two members talk over connections that keep the order of messages. A *line* is one
//! connection; calls go over it from the one who made it, answers come back.
//!
//! **Failure.** An operation fails as soon as one member says that its part has failed, is found to be gone, or
//! does not answer within its limit; the first word of a failure goes up at once. Whoever has said that an
//! operation failed has forgotten it, and takes later answers for what they are. Those below who have not
//! heard of the failure finish their part, and their answers find nobody: nothing waits longer than its
//! limit, which grows shorter from level to level.
//!
//! A call may arrive after the coordinator's own word that gives its checkpoint up. So a member
//! remembers that word, and does nothing for such a checkpoint any more.
//!
//! **Reset.** A new *generation* begins by a word of the coordinator, or by a mark that says so. A member that
//! hears of it gives up all operations, drops what it has not sent yet, and sends one mark over each of its
//! lines. What comes over a line before the mark of the member's own generation is discarded. So after the
//! two marks of a line nothing of before is left in it, whatever was in it. Nobody waits for anything in order
//! to send its mark, and nobody stops taking messages while it waits for the other's: there is no deadlock.

#![forbid(unsafe_code)]

pub mod member;
pub mod root;
pub mod shape;
pub mod work;

pub use member::{Act, Caller, Line, Member, Own};
pub use root::{Outcome, Root, Wish};
pub use work::Works;
