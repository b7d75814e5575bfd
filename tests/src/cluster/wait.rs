//! Waiting for what others do.

use std::time::{Duration, Instant};

use crate::job::Failure;

/// From one look to the next.
const STEP: Duration = Duration::from_millis(10);

/// Looks until there is something to be seen.
///
/// # Errors
/// When the look fails, or nothing was seen within `limit`; the failure says what was awaited.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(seen) = look()? {
            return Ok(seen);
        }
        if Instant::now() >= deadline {
            let limit = limit.as_secs_f64();
            return Err(Failure(format!("waited {limit} s in vain until {what}")));
        }
        std::thread::sleep(STEP);
    }
}
