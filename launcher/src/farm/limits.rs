//! How much a run may have.

/// The most tasks of a run: of so many the journal stays within its limit.
pub const MOST_TASKS: u32 = 500_000;
/// The longest line of a journal, in bytes.
pub const LONGEST_LINE: u64 = 256;
/// The most ends of tries that a journal has room for.
pub const MOST_ENDS: u64 = coordinator::MAX_LOG / LONGEST_LINE;
