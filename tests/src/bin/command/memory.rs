//! Memory that a machine has not enough of in the form that the job had.

use std::fs;
use std::path::Path;

use ckptd_tests::build;
use ckptd_tests::huge_pages::{HugeFolder, HugePages};
use ckptd_tests::job::Failure;

use super::stage::{JOB, Stage, expect, fail, own, until};

/// More than the program takes.
const PAGES: u32 = 64;

/// A job with huge pages is restarted where there are none: with ordinary ones, which is said, and then where there are
/// again, with what it has by then.
pub fn huge_pages_lacking(stage: &Stage) -> Result<(), Failure> {
    lacking(stage, "hugepages.c")
}

/// As [`huge_pages_lacking`], with memory that processes share.
pub fn shared_huge_pages_lacking(stage: &Stage) -> Result<(), Failure> {
    lacking(stage, "hugeshared.c")
}

/// As [`huge_pages_lacking`], with pages over a memfd.
pub fn private_huge_pages_lacking(stage: &Stage) -> Result<(), Failure> {
    lacking(stage, "hugeprivate.c")
}

/// As [`huge_pages_lacking`], with files of a hugetlbfs.
pub fn huge_files_lacking(stage: &Stage) -> Result<(), Failure> {
    let _mounted = HugeFolder::mount();
    lacking(stage, "hugefile.c")
}

fn lacking(stage: &Stage, source: &str) -> Result<(), Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let program = build::conformance(&folder.join(source), &folder, &stage.home);
    let program = program.map_err(|e| Failure(e.to_string()))?.display().to_string();
    let work = stage.home.join("w");
    own(fs::create_dir(&work).and_then(|()| stage.account.give(&work)))?;
    let Some(lent) = HugePages::lend(PAGES) else {
        println!("no huge pages can be had here: the case is not tested");
        return Ok(());
    };
    let job =
        ["run", "--interval", "0", "--name", JOB, "--", &program, &work.display().to_string()];
    let running = stage.start(&job)?;
    until("the memory is filled", || work.join("ready").exists() || work.join("skipped").exists())?;
    expect(!work.join("skipped").exists(), || "there are no huge pages".into())?;
    stage.checkpoint()?;
    running.kill()?;
    stage.expect_gone()?;
    drop(lent);
    // However many the machine allows.
    let _none = HugePages::lend(0);
    let running = stage.restart(&[])?;
    let said = "ordinary pages instead of";
    // For a program that looks at how large its pages are.
    own(fs::write(work.join("ordinary"), ""))?;
    until("the lack is told", || running.text().1.contains(said))?;
    stage.checkpoint()?;
    running.kill()?;
    stage.expect_gone()?;
    let _lent = HugePages::lend(PAGES);
    let running = stage.restart(&[])?;
    if running.text().1.contains(said) {
        return fail("ordinary pages are told of once more");
    }
    own(fs::write(work.join("go"), ""))?;
    let finished = running.finish()?.expect(0)?;
    expect(work.join("ok").exists(), || format!("the memory is wrong: {finished:?}"))
}
