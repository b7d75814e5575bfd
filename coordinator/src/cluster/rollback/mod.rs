//! From a loss to progress: a new epoch is made, step by step, each in a file of its own.
//!
//! 0. *beginning*: why, and from which checkpoint; everything older is void from here on;
//! 1. *killing*: every machine that may still run something of an older epoch ends it, or is
//!    declared gone, and with it, by its lease, what it ran;
//! 2. *waiting*: until there are machines and images, which may be at once;
//! 3. *preparing*: who goes where (`plan`), without the daemons that can't be had, or that the user does not want back
//!    (`departed`); images are fetched, from copies that are not known to be damaged (`damaged`);
//! 4. *restoring*: sockets are paired (`pairing`) and connected, until everything is complete and stands still;
//! 5. *starting*: relays are paired, and everything is let go.
//!
//! What fails after the first step is killed, and made again as one more epoch (`failing`). An epoch that
//! starts from no checkpoint is launched (`launching`) instead of 3 to 5. Where an epoch stands is `making`.

mod beginning;
mod damaged;
mod departed;
mod destinations;
mod failing;
mod killing;
mod launching;
mod making;
mod pairing;
pub(super) mod plan;
mod preparing;
mod restoring;
mod sources;
mod starting;
mod telling;
mod waiting;

pub(super) use making::{Arrival, Beginning, Making, RelayEnds};
pub(super) use telling::moved_for;
