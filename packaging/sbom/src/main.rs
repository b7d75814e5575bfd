//! Writes what an executable of ckptd is made of: a bill of materials, CycloneDX 1.5 in JSON.
//!
//! ```text
//! ckptd-sbom TARGET TIMESTAMP SHA256 [NAME@VERSION=LICENCE...]
//! ```
//!
//! Lists the packages that are linked into it for a target, by what `cargo tree` resolves, with the checksums of
//! `Cargo.lock`, and what else is named. `packaging/release` calls it. The same arguments give the same bytes.

mod bill;
mod tree;

use std::process::{Command, ExitCode};

use bill::Subject;
use tree::Id;

/// Why there is no bill.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("usage: ckptd-sbom TARGET TIMESTAMP SHA256 [NAME@VERSION=LICENCE...]")]
    Usage,
    #[error("cannot run cargo: {0}")]
    Cargo(std::io::Error),
    #[error("cargo tree failed: {0}")]
    Failed(String),
    #[error("cannot read Cargo.lock: {0}")]
    Lock(String),
    #[error("cargo tree printed what is not understood: {0:?}")]
    Tree(String),
    #[error("Cargo.lock has no checksum of {} {}", .0.name, .0.version)]
    NoChecksum(Id),
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ckptd-sbom: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: impl Iterator<Item = String>) -> Result<String, Error> {
    let (Some(target), Some(timestamp), Some(sha256)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(Error::Usage);
    };
    let beside =
        arguments.map(|text| beside(&text).ok_or(Error::Usage)).collect::<Result<_, _>>()?;
    let (root, packages) = tree::read(&linked(&target)?)?;
    let lock =
        std::fs::read_to_string("Cargo.lock").map_err(|error| Error::Lock(error.to_string()))?;
    let subject = Subject { sha256, target, timestamp, beside };
    let bill = bill::bill(&subject, &root, &packages, &bill::checksums(&lock)?)?;
    Ok(serde_json::to_string_pretty(&bill)?)
}

/// `NAME@VERSION=LICENCE`.
fn beside(text: &str) -> Option<(Id, String)> {
    let (id, licence) = text.split_once('=')?;
    let (name, version) = id.split_once('@')?;
    Some((Id { name: name.to_owned(), version: version.to_owned() }, licence.to_owned()))
}

/// The tree of what is linked: neither what only the build needs, nor procedural macros.
fn linked(target: &str) -> Result<String, Error> {
    let said = Command::new("cargo")
        .args([
            "tree",
            "--locked",
            "--package",
            "ckptd",
            "--target",
            target,
            "--edges",
            "normal,no-proc-macro",
        ])
        .args(["--prefix", "depth", "--charset", "ascii", "--format", tree::FORMAT])
        .output()
        .map_err(Error::Cargo)?;
    if !said.status.success() {
        return Err(Error::Failed(String::from_utf8_lossy(&said.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}
