//! Images of every format that there ever was (tests/corpus): each is restarted for ever.

use std::fs;
use std::path::{Path, PathBuf};

use ckptd_tests::job::Failure;

use super::archives::text;
use super::stage::{Stage, expect, own};

/// Where they are.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
/// What all of them may take, so that the repository stays small.
const MOST_BYTES: u64 = 300 << 10;

/// Each image of this machine's processor goes on, and finds everything as it was.
pub fn restarted(stage: &Stage) -> Result<(), Failure> {
    let ending = format!("-{}.ckptd", std::env::consts::ARCH);
    let (mut tried, mut bytes) = (0, 0);
    for entry in own(fs::read_dir(FOLDER))?.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        bytes += own(entry.metadata())?.len();
        let Some(name) = name.strip_suffix(&ending) else { continue };
        goes_on(stage, &path, name).map_err(|why| Failure(format!("{name}: {why}")))?;
        tried += 1;
    }
    expect(bytes < MOST_BYTES, || format!("{FOLDER} has {bytes} bytes"))?;
    // There is one of every format for x86-64.
    expect(tried > 0 || cfg!(not(target_arch = "x86_64")), || format!("{FOLDER} has no {ending}"))
}

/// Once as it was taken, and once more from a checkpoint that this ckptd takes of what it has restarted.
fn goes_on(stage: &Stage, image: &Path, name: &str) -> Result<(), Failure> {
    // The user of the case may not be able to read the repository.
    let file: PathBuf = stage.home.join("image");
    own(fs::copy(image, &file).and_then(|_| stage.account.give(&file)))?;
    stage.output(&["import", &text(&file), "--name", name], "")?.expect(0)?;
    let verdicts = stage.json(&["verify", name])?;
    expect(verdicts[0]["verdict"] == "whole", || format!("{verdicts}"))?;
    let mut running = stage.start(&["restart", name])?;
    stage.until_runs(name, &mut running)?;
    stage.output(&["checkpoint", name], "")?.expect(0)?;
    kept(running)?;
    stage.expect_gone()?;
    // It has ended by itself, so it is to be told to go back.
    kept(stage.start(&["restart", name, "--checkpoint", "2"])?)?;
    stage.expect_gone()?;
    stage.output(&["rm", name], "")?.expect(0).map(drop)
}

/// It is told to look, and finds everything.
fn kept(mut running: super::stage::Running) -> Result<(), Failure> {
    running.say("\n")?;
    let ended = running.finish()?.expect(0)?;
    expect(ended.out == "kept\n", || format!("{ended:?}"))
}
