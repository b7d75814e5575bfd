//! From a loss to progress: a new epoch is made.
//!
//! 1. *killing*: every machine that may still run something of an older epoch ends it, or is
//!    declared gone, and with it, by its lease, what it ran;
//! 2. planning (`plan`), at once, or *waiting* until there are machines and images; daemons that can't
//!    be had, or that the user does not want back, are left out (`departed`);
//! 3. *preparing*: images are fetched, from copies that are not known to be damaged (`damaged`); sockets are told of and paired (`pairing`);
//! 4. *restoring*: everything is complete and stands still; relays are paired;
//! 5. *starting*: everything is let go.
//!
//! What fails after the first step is killed, and made again as one more epoch. An epoch that
//! starts from no checkpoint is *launched* instead of 3 to 5.

mod damaged;
mod departed;
mod making;
mod pairing;
pub(super) mod plan;
mod steps;

pub(super) use making::{Beginning, Making, RelayEnds, moved_for};
