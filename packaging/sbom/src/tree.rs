//! What `cargo tree --prefix depth` prints: the packages of an executable, with the features that are resolved for it alone.
//! (`cargo metadata` resolves them for the whole workspace, tests included.)

use std::collections::{BTreeMap, BTreeSet};

use super::Error;

/// The format that [`read`] expects: `cargo tree --format`.
pub const FORMAT: &str = "\t{p}\t{l}";

/// A version of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What the tree tells of a package.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Its licence, an expression of SPDX; empty: it names none.
    pub licence: String,
    /// Whether it belongs to this workspace.
    pub is_ours: bool,
    /// What it needs.
    pub needs: BTreeSet<Id>,
}

/// Reads a tree. Gives its root, and all packages.
pub fn read(tree: &str) -> Result<(Id, BTreeMap<Id, Package>), Error> {
    let mut packages: BTreeMap<Id, Package> = BTreeMap::new();
    // The packages on the way from the root to the line before.
    let mut way: Vec<Id> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let wrong = || Error::Tree(line.to_owned());
        let mut fields = line.split('\t');
        let (Some(depth), Some(package), Some(licence)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Err(wrong());
        };
        let depth: usize = depth.parse().map_err(|_| wrong())?;
        if depth > way.len() || (depth == 0 && !way.is_empty()) {
            return Err(wrong());
        }
        let mut words = package.split(' ');
        let (Some(name), Some(version)) =
            (words.next(), words.next().and_then(|word| word.strip_prefix('v')))
        else {
            return Err(wrong());
        };
        let id = Id { name: name.to_owned(), version: version.to_owned() };
        way.truncate(depth);
        if let Some(parent) = way.last() {
            packages.entry(parent.clone()).or_default().needs.insert(id.clone());
        }
        let entry = packages.entry(id.clone()).or_default();
        // A package whose own needs stand further above.
        licence.trim_end_matches(" (*)").clone_into(&mut entry.licence);
        entry.is_ours = words.next().is_some_and(|place| place.starts_with("(/"));
        way.push(id);
    }
    let root = way.into_iter().next().ok_or_else(|| Error::Tree(String::new()))?;
    Ok((root, packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, version: &str) -> Id {
        Id { name: name.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn a_tree_is_read_once_for_each_package() {
        let text = "0\tckptd v0.1.0 (/somewhere/launcher)\tMIT OR Apache-2.0\n1\tage v0.12.1\tMIT\n2\tcfg-if v1.0.5\tMIT\n\
                    1\tprotocol v0.1.0 (/somewhere/protocol)\tMIT\n2\tage v0.12.1\tMIT (*)\n";
        let (root, packages) = read(text).expect("a tree");
        assert_eq!(root, id("ckptd", "0.1.0"));
        assert_eq!(packages.len(), 4);
        assert_eq!(
            packages[&root].needs,
            BTreeSet::from([id("age", "0.12.1"), id("protocol", "0.1.0")])
        );
        let age = &packages[&id("age", "0.12.1")];
        assert_eq!((age.licence.as_str(), age.is_ours), ("MIT", false));
        assert_eq!(age.needs, BTreeSet::from([id("cfg-if", "1.0.5")]));
        assert!(packages[&id("protocol", "0.1.0")].is_ours);
        assert!(packages[&id("cfg-if", "1.0.5")].needs.is_empty());
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        for text in [
            "",
            "0 ckptd",
            "x\tckptd v1.0.0\tMIT",
            "1\tckptd v1.0.0\tMIT",
            "0\ta v1.0.0\t\n2\tb v1.0.0\t",
            "0\ta v1.0.0\t\n0\tb v1.0.0\t",
            "0\tckptd\tMIT",
            "0\tckptd 1.0.0\tMIT",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
