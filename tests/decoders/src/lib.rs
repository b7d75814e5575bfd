//! Everything that reads bytes which others have written, as functions of bytes, with valid samples
//! to begin from. The fuzz targets in `tests/fuzz/` call them, and so does a bounded test of this crate.
//!
//! A decoder may refuse; it may not panic, nor take memory out of proportion to what it was given.

mod address_maps;
mod coordinator;
mod dmtcp;
mod jobs;
mod keys;
mod messages;
pub mod mutate;
pub mod random;
pub mod sample;
mod store;

use random::Random;

/// A decoder, or a few of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, that of the fuzz target too.
    pub name: &'static str,
    /// Reads the bytes, and does what would be done with what they say.
    pub read: fn(&[u8]),
    /// Valid bytes, made from a source of chance.
    pub seeds: fn(&mut Random) -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 13] = [
    Target { name: "frames", read: messages::frames, seeds: messages::frame_seeds },
    Target { name: "lines", read: messages::lines, seeds: messages::line_seeds },
    Target { name: "words", read: messages::words, seeds: messages::word_seeds },
    Target { name: "address_map", read: address_maps::address_map, seeds: address_maps::seeds },
    Target { name: "coordinator_log", read: coordinator::log, seeds: coordinator::log_seeds },
    Target { name: "coordinator", read: coordinator::machine, seeds: coordinator::machine_seeds },
    Target { name: "keys", read: keys::read, seeds: keys::seeds },
    Target { name: "dmtcp", read: dmtcp::conversation, seeds: dmtcp::seeds },
    Target { name: "mark", read: store::mark, seeds: store::mark_seeds },
    Target { name: "image", read: store::image, seeds: store::image_seeds },
    Target { name: "archive", read: store::archive, seeds: store::archive_seeds },
    Target { name: "portable", read: store::portable, seeds: store::portable_seeds },
    Target { name: "state_files", read: jobs::state_files, seeds: jobs::seeds },
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// An empty folder, in memory where there is such a place.
fn room() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}
