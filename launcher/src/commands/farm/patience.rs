//! What is done about a farm that nobody runs, while somebody waits for its tasks.

use crate::farm::{self, FarmError, FarmFolder};
use std::time::{Duration, Instant};

/// How long nobody may run the farm: somebody may be about to.
const LONGEST: Duration = Duration::from_secs(3);

/// What is done about it.
pub struct Patience {
    /// Whether it is begun again, unless somebody has stopped it.
    resume: bool,
    /// Since when nobody runs it.
    idle: Option<Instant>,
    /// Whether it was told that somebody has stopped it.
    told: bool,
}

impl Patience {
    /// `resume`: whether the farm is begun again, unless somebody has stopped it.
    pub fn new(resume: bool) -> Self {
        Self { resume, idle: None, told: false }
    }

    /// To be called at each look; `left` names what has not ended.
    ///
    /// # Errors
    /// Where nobody runs the farm, and that will not change.
    pub fn look(
        &mut self,
        folder: &FarmFolder,
        is_running: bool,
        left: impl FnOnce() -> String,
    ) -> Result<(), FarmError> {
        if is_running {
            (self.idle, self.told) = (None, false);
            return Ok(());
        }
        let since = *self.idle.get_or_insert_with(Instant::now);
        if since.elapsed() < LONGEST {
            return Ok(());
        }
        let name = folder.name();
        if !self.resume {
            return Err(FarmError::Idle { name: name.to_owned(), left: left() });
        }
        if !farm::is_stopped(folder) {
            self.idle = None;
            return farm::go_on(folder);
        }
        if !self.told {
            self.told = true;
            farm::say(&format!("the farm {name} is stopped; 'ckptd farm start {name}' goes on"));
        }
        Ok(())
    }
}
