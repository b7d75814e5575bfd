//! A part of the cases, in namespaces of its own: what is left in them afterwards can be nobody else's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ckptd_tests::job::Failure;

use super::guard::World;
use super::material::{Case, Material};
use super::restore::Stage;
use super::{Options, examine, impossible};

/// How many images each change by hand is made to, unless to all.
const IMAGES_OF_EACH: usize = 2;
/// Each so-manieth changed image is also restored by the command.
const BY_COMMAND: u64 = 8;

/// Runs them.
pub fn run(options: &Options, shard: u64) -> Result<bool, Box<dyn std::error::Error>> {
    let root = private_copy(&options.root, shard)?;
    let material = Material::gather(&root, options.seed)?;
    let ckptd = root.join("bin/ckptd");
    let own = root.join("bin/graphs");
    let (mut refused, mut made, mut failed) = (0, 0, 0);
    if options.case.is_none() {
        failed += examine::all(&material, options, shard)?;
    }
    let world = World::now();
    if options.case.is_none() {
        failed += unchanged(&material, &own, &world, options.shards, shard);
    }
    for case in cases(options, material.subjects.len()) {
        let mine = options.case.map_or(case.number % options.shards == shard, |n| n == case.number);
        if !mine {
            continue;
        }
        let Some((documents, what)) = material.changed(&case) else { continue };
        let subject = &material.subjects[case.subject];
        let stage =
            Stage { subject, original: &material.documents[case.subject], documents: &documents };
        let by_command = case.number % BY_COMMAND == 0 || options.case.is_some();
        let outcome = stage.restore(&own, by_command.then_some(&ckptd), &world, &material.outside);
        match outcome {
            Ok(told) => {
                refused += told.iter().filter(|line| line.starts_with("refused")).count();
                made += told.iter().filter(|line| line.starts_with("made")).count();
                if options.case.is_some() || std::env::var_os("CKPTD_GRAPHS_TELL").is_some() {
                    println!("{} {} ({what}): {told:#?}", case.number, subject.name);
                }
            }
            Err(failure) => {
                failed += 1;
                println!("FAIL case {} of {}: {what}: {failure}", case.number, subject.name);
            }
        }
    }
    println!("part {shard}: {refused} restores refused, {made} made a job, {failed} failed");
    Ok(failed == 0)
}

/// As they are, this part's share of the images must be restored: else all refusals would mean nothing. How many are not.
fn unchanged(material: &Material, own: &Path, world: &World, shards: u64, shard: u64) -> u32 {
    let mut failed = 0;
    let all = material.subjects.iter().zip(&material.documents).zip(0..);
    for ((subject, documents), _) in all.filter(|(_, number)| number % shards == shard) {
        let stage = Stage { subject, original: documents, documents };
        let why = match stage.restore(own, None, world, &material.outside) {
            Ok(told) if told.iter().all(|line| line.starts_with("made")) => continue,
            Ok(told) => format!("{told:?}"),
            Err(failure) => failure.to_string(),
        };
        failed += 1;
        println!("FAIL {} as it is: {why}", subject.name);
    }
    failed
}

/// Changes by hand first; their numbers stay the same whatever the count of the others.
fn cases(options: &Options, subjects: usize) -> Vec<Case> {
    let all = impossible::ALL.len();
    let mut found = Vec::new();
    let each = if options.all { subjects } else { IMAGES_OF_EACH.min(subjects) };
    for by_hand in 0..all {
        for turn in 0..subjects {
            let subject = (by_hand + turn * (subjects / each.max(1)).max(1)) % subjects.max(1);
            let number = (by_hand * subjects + turn) as u64;
            if turn < each || options.case == Some(number) {
                found.push(Case { number, subject, by_hand: Some(by_hand) });
            }
        }
    }
    let first = (all * subjects) as u64;
    for number in first..first + options.count.max(options.examined) {
        let subject = (number % subjects.max(1) as u64) as usize;
        if number < first + options.count || options.case == Some(number) {
            found.push(Case { number, subject, by_hand: None });
        }
    }
    found
}

/// A copy of the test folder for this part alone, under the same path.
fn private_copy(root: &Path, shard: u64) -> Result<PathBuf, Failure> {
    let copy = root.with_extension(format!("part-{shard}"));
    let run = |words: &[&std::ffi::OsStr]| {
        let status = Command::new(words[0]).args(&words[1..]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(Failure(format!("{words:?}: {other:?}"))),
        }
    };
    fs::create_dir(&copy).map_err(|e| Failure(format!("{}: {e}", copy.display())))?;
    run(&["mount".as_ref(), "-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), copy.as_ref()])?;
    let inner = copy.join("copy");
    run(&["cp".as_ref(), "-a".as_ref(), root.as_ref(), inner.as_ref()])?;
    run(&[
        "cp".as_ref(),
        "-a".as_ref(),
        inner.join("jobs").as_ref(),
        inner.join("pristine").as_ref(),
    ])?;
    run(&["mount".as_ref(), "--bind".as_ref(), inner.as_ref(), root.as_ref()])?;
    for folder in ["/dev/shm", "/dev/mqueue"] {
        let kind = if folder == "/dev/shm" { "tmpfs" } else { "mqueue" };
        // A machine without one has nothing to be left in it.
        let _ =
            run(&["mount".as_ref(), "-t".as_ref(), kind.as_ref(), kind.as_ref(), folder.as_ref()]);
    }
    Ok(root.to_owned())
}
