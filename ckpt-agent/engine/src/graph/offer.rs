//! Which processor a process began on: its C library and the program itself may have chosen their code by that.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ProcessImage;

/// Digits of a mark.
const MARK_LENGTH: usize = 32;

/// What programs were offered when they began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Features, as /proc/cpuinfo names them.
    pub features: BTreeSet<String>,
    /// Marks of the programs that were ([`mark`]).
    pub programs: BTreeSet<String>,
}

/// Tells one execution of a program from another, by its auxiliary vector (hex), in which addresses are random ones of that execve(2).
/// Children that were forked have their parent's. Where addresses are not random (setarch -R) a program that is executed once
/// more is taken for the one before.
pub fn mark(auxv: &str) -> String {
    let mut mark = blake3::hash(auxv.as_bytes()).to_hex().to_string();
    mark.truncate(MARK_LENGTH);
    mark
}

/// What these processes need, as far as it is recorded.
pub fn wanted<'a>(
    offers: &'a [Offer],
    processes: impl IntoIterator<Item = &'a ProcessImage>,
) -> BTreeSet<&'a str> {
    let marks: BTreeSet<String> =
        processes.into_iter().map(|process| mark(&process.auxv)).collect();
    let offers = offers.iter().filter(|offer| !offer.programs.is_disjoint(&marks));
    offers.flat_map(|offer| &offer.features).map(String::as_str).collect()
}

/// Notes that a program was offered these.
pub fn note(offers: &mut Vec<Offer>, features: BTreeSet<String>, mark: String) {
    match offers.iter_mut().find(|offer| offer.features == features) {
        Some(offer) => drop(offer.programs.insert(mark)),
        None => offers.push(Offer { features, programs: [mark].into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_were_offered_the_same_are_told_once() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut offers = Vec::new();
        note(&mut offers, set(&["avx"]), mark("01"));
        note(&mut offers, set(&["avx", "avx2"]), mark("02"));
        note(&mut offers, set(&["avx"]), mark("03"));
        assert_eq!(offers.len(), 2);
        assert_eq!(offers[0].programs, [mark("01"), mark("03")].into());
        assert_ne!(mark("01"), mark("02"));
    }
}
