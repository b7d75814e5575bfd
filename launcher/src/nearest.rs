//! Names that were perhaps meant.

/// How far a name may be from one that was perhaps meant, in letters that are added, missing, changed or exchanged.
const NEAR: usize = 3;

/// The name that was perhaps meant.
pub fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let distance = |one: &String| strsim::damerau_levenshtein(one, name);
    known.min_by_key(distance).filter(|one| distance(one) <= NEAR)
}
