//! The bill of materials itself: CycloneDX 1.5, as JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Error;
use super::tree::{Id, Package};

/// `Cargo.lock`.
#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

/// A package in it.
#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// What is described.
pub struct Subject {
    /// The SHA-256 sum of the executable, in hexadecimal.
    pub sha256: String,
    /// For which target it was built.
    pub target: String,
    /// When it was made, as RFC 3339 has it.
    pub timestamp: String,
    /// What is linked into it beside packages of cargo: the standard library of Rust, the C library.
    pub beside: Vec<(Id, String)>,
}

/// The checksums of a `Cargo.lock`.
pub fn checksums(lock: &str) -> Result<BTreeMap<Id, String>, Error> {
    let lock: Lock = toml::from_str(lock).map_err(|error| Error::Lock(error.to_string()))?;
    let known = lock.package.into_iter().filter_map(|package| {
        Some((Id { name: package.name, version: package.version }, package.checksum?))
    });
    Ok(known.collect())
}

/// The bill of an executable. What is not of this workspace must have a checksum.
pub fn bill(
    subject: &Subject,
    root: &Id,
    packages: &BTreeMap<Id, Package>,
    checksums: &BTreeMap<Id, String>,
) -> Result<Value, Error> {
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for (id, package) in packages {
        let mut needs: Vec<String> =
            package.needs.iter().map(|need| reference(need, packages)).collect();
        if id == root {
            needs.extend(subject.beside.iter().map(|(id, _)| generic(id)));
        } else {
            components.push(component(id, package, packages, checksums)?);
        }
        dependencies.push(json!({ "ref": reference(id, packages), "dependsOn": needs }));
    }
    for (id, licence) in &subject.beside {
        components.push(json!({
            "type": "library", "bom-ref": generic(id), "name": id.name, "version": id.version,
            "licenses": [{ "expression": licence }], "purl": generic(id),
        }));
        dependencies.push(json!({ "ref": generic(id), "dependsOn": [] }));
    }
    let licence = packages.get(root).map_or("", |package| package.licence.as_str());
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": subject.timestamp,
            "tools": { "components": [
                { "type": "application", "name": "ckptd-sbom", "version": env!("CARGO_PKG_VERSION") },
            ] },
            "component": {
                "type": "application", "bom-ref": reference(root, packages), "name": root.name, "version": root.version,
                "hashes": [{ "alg": "SHA-256", "content": subject.sha256 }],
                "licenses": [{ "expression": licence }],
                "properties": [{ "name": "target", "value": subject.target }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn component(
    id: &Id,
    package: &Package,
    packages: &BTreeMap<Id, Package>,
    checksums: &BTreeMap<Id, String>,
) -> Result<Value, Error> {
    let mut component = json!({
        "type": "library", "bom-ref": reference(id, packages), "name": id.name, "version": id.version,
    });
    if !package.licence.is_empty() {
        // An older way to write it, which SPDX has not.
        let expression = package.licence.replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if package.is_ours {
        component["group"] = json!("ckptd");
    } else {
        let sum = checksums.get(id).ok_or_else(|| Error::NoChecksum(id.clone()))?;
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        component["purl"] = json!(reference(id, packages));
    }
    Ok(component)
}

/// What a package is called within the bill. Others' are called by their address; ours are in no registry, where somebody
/// else's package may have that name.
fn reference(id: &Id, packages: &BTreeMap<Id, Package>) -> String {
    if packages.get(id).is_some_and(|package| package.is_ours) {
        return format!("ckptd/{}@{}", id.name, id.version);
    }
    // Of all that may stand in a version, only a plus sign is written otherwise there.
    format!("pkg:cargo/{}@{}", id.name, id.version.replace('+', "%2B"))
}

fn generic(id: &Id) -> String {
    format!("pkg:generic/{}@{}", id.name, id.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    const TREE: &str = "0\tckptd v0.1.0 (/x/launcher)\tMIT\n1\tprotocol v0.1.0 (/x/protocol)\tMIT\n\
                        2\tzstd-sys v2.0.1+zstd.1.5.7\tMIT/Apache-2.0\n";
    const LOCK: &str = "version = 4\n[[package]]\nname = \"zstd-sys\"\nversion = \"2.0.1+zstd.1.5.7\"\n\
                        source = \"registry\"\nchecksum = \"abc\"\n[[package]]\nname = \"ckptd\"\nversion = \"0.1.0\"\n";

    fn subject() -> Subject {
        let std = Id { name: "rust-std".to_owned(), version: "1.90.0".to_owned() };
        Subject {
            sha256: "00ff".to_owned(),
            target: "x86_64-unknown-linux-gnu".to_owned(),
            timestamp: "2026-01-02T03:04:05Z".to_owned(),
            beside: vec![(std, "MIT".to_owned())],
        }
    }

    #[test]
    fn what_is_linked_is_listed_with_its_sum_and_licence() {
        let (root, packages) = tree::read(TREE).expect("a tree");
        let bill =
            bill(&subject(), &root, &packages, &checksums(LOCK).expect("a lock")).expect("a bill");
        let names: Vec<_> =
            (0..3).map(|at| bill["components"][at]["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["protocol", "zstd-sys", "rust-std"]);
        assert!(bill["components"][3].is_null());
        let zstd = &bill["components"][1];
        assert_eq!(zstd["purl"], "pkg:cargo/zstd-sys@2.0.1%2Bzstd.1.5.7");
        assert_eq!(zstd["hashes"][0]["content"], "abc");
        assert_eq!(zstd["licenses"][0]["expression"], "MIT OR Apache-2.0");
        // It would name somebody else's.
        assert!(bill["components"][0]["purl"].is_null());
        assert_eq!(bill["metadata"]["component"]["hashes"][0]["content"], "00ff");
        let needs = &bill["dependencies"][0];
        assert_eq!(
            needs["dependsOn"],
            json!(["ckptd/protocol@0.1.0", "pkg:generic/rust-std@1.90.0"])
        );
    }

    #[test]
    fn a_package_without_a_checksum_is_named() {
        let (root, packages) = tree::read(TREE).expect("a tree");
        let refused =
            bill(&subject(), &root, &packages, &BTreeMap::new()).expect_err("no checksum");
        assert!(matches!(refused, Error::NoChecksum(id) if id.name == "zstd-sys"));
    }
}
