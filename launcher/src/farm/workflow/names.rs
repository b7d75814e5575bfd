//! Names from a workflow, in messages.

use crate::tables::printable;

/// The longest name that is shown.
const LONGEST: usize = 80;

/// A name as it is shown.
pub fn shown(name: &str) -> String {
    printable(&name.chars().take(LONGEST).collect::<String>())
}
