//! What is told of images.

use super::AppState;
use protocol::cluster::image::{Effort, Efforts, ImageFacts};

use crate::common::image_facts;

/// An image's facts.
pub fn facts(state: &AppState) -> ImageFacts {
    // An image tells of a remote shell's first process, too.
    image_facts(&state.pids, state.pids.contains(&2), Some(efforts(state)))
}

/// Ranks of three weights wait for each other asleep.
fn efforts(state: &AppState) -> Efforts {
    let at_ms = state.counter.saturating_mul(100);
    let effort = |pid: i32| {
        let part = match pid {
            2 => 0,
            pid if pid % 3 == 0 => 1,
            pid if pid % 3 == 1 => 2,
            _ => 4,
        };
        (pid, Effort { user_ms: at_ms * part / 4, ..Effort::default() })
    };
    let processes = state.pids.iter().map(|pid| effort(*pid)).collect();
    Efforts { at_ms, processes, idle_permille: None }
}
