//! The job scripts of the guide to schedulers, with a short time limit and without a scheduler.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ckptd_tests::job::Failure;

use super::stage::{Finished, Running, Stage, expect, fail, own};

/// What the guide's scripts start: it ends by itself once it is told to, and says whether it went on.
const MPIRUN: &str = "#!/bin/sh\n[ \"$1\" != --version ] || exit 0\necho begins >> begun; while [ ! -e go ]; do sleep 0.02; done\n\
                      echo \"right: $*\"; cat begun\n";
/// How a scheduler is told of the next run.
const QSUB: &str = "#!/bin/sh\necho \"$*\" >> submitted\n";
/// The guide.
const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/guides/schedulers.md");
/// The guide's time until the signal.
const LIMIT: &str = "230m";

/// How long a run has that is cut off.
const CUT_OFF: &str = "12s";

/// The lines of code below that heading of the guide.
fn script(heading: &str) -> Result<String, Failure> {
    let guide = own(fs::read_to_string(Path::new(GUIDE)))?;
    let section = guide.split("\n## ").find_map(|section| section.strip_prefix(heading));
    let lines =
        section.into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix("    "));
    let script = lines.map(|line| format!("{line}\n")).collect::<String>();
    expect(script.contains(LIMIT), || format!("no script of {heading}"))?;
    Ok(script)
}

fn program(path: &Path, text: &str) -> Result<(), Failure> {
    own(fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755))))
}

/// Runs a script as schedulers do whose own shell survives the signal.
fn submitted(stage: &Stage, tools: &Path, script: &str, limit: &str) -> Result<Finished, Failure> {
    let file = stage.home.join("script");
    program(&file, &script.replace(LIMIT, limit))?;
    let mut command = stage.alone(&["bash", "-c", "trap '' USR1 HUP; exec bash ./script"]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.current_dir(&stage.home).env("HOME", &stage.home);
    command.env("PATH", format!("{}:{path}", tools.display()));
    command.env("CKPTD_DIR", stage.home.join("state")).env("PBS_O_WORKDIR", &stage.home);
    command.env("PBS_JOBNAME", "simulate").env("LSB_JOBNAME", "simulate");
    Running::start(command)?.finish()
}

/// The first run is cut off and kept, the second one goes on to the end.
pub fn scripts(stage: &Stage) -> Result<(), Failure> {
    let tools: PathBuf = stage.outside.path().join("tools");
    own(fs::create_dir(&tools).and_then(|()| symlink(stage.ckptd(), tools.join("ckptd"))))?;
    own(fs::set_permissions(stage.outside.path(), Permissions::from_mode(0o755)))?;
    program(&tools.join("mpirun"), MPIRUN)?;
    program(&tools.join("qsub"), QSUB)?;
    let store = stage.home.join("kept");
    own(fs::create_dir(&store).and_then(|()| stage.account.give(&store)))?;
    let (go, archive) = (stage.home.join("go"), store.join("simulate.ckptd"));
    for (heading, submits) in [("PBS", true), ("LSF", false)] {
        let script = script(heading)?;
        let cut = submitted(stage, &tools, &script, CUT_OFF)?.expect(85)?;
        expect(archive.exists(), || format!("{heading}: nothing is kept: {cut:?}"))?;
        let again = fs::read_to_string(stage.home.join("submitted")).unwrap_or_default();
        expect(again == if submits { "simulate.pbs\n" } else { "" }, || format!("{again:?}"))?;
        own(fs::write(&go, ""))?;
        let ended = submitted(stage, &tools, &script, "1m")?.expect(0)?;
        let is_right = ended.out == "right: -np 16 ./simulate\nbegins\n" && !archive.exists();
        if !is_right {
            return fail(format!("{heading}: {ended:?}"));
        }
        own(fs::remove_file(&go).and_then(|()| fs::remove_file(stage.home.join("begun"))))?;
        let _ = fs::remove_file(stage.home.join("submitted"));
    }
    Ok(())
}
