//! Checkpoints as archives: taken elsewhere, refused, interrupted.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use ckptd_tests::job::Failure;

use super::stage::{Finished, JOB, Stage, expect, own, until};

/// With memory that fills several blocks of a compressed archive, whole ones being what can be read of one
/// that is not complete.
pub const LOOP: &str = "r=$(head -c 900000 /dev/urandom | base64 -w0); n=0; echo ready; while [ ! -e go ]; do n=$((n+1)); sleep 0.02; done; echo right";

pub fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The archive of a job that was killed since.
pub fn archive(stage: &Stage) -> Result<PathBuf, Failure> {
    let running = stage.run(&["sh", "-c", LOOP])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    let file = stage.home.join("job.tar.zst");
    let exported = stage.output(&["export", JOB, &text(&file)], "")?.expect(0)?;
    expect(exported.out.is_empty() && exported.err.contains("checkpoint 1 of j"), || {
        format!("{exported:?}")
    })?;
    running.kill()?;
    stage.expect_gone()?;
    Ok(file)
}

pub fn refused(finished: Finished, words: &str) -> Result<(), Failure> {
    let ended = finished.expect(125)?;
    let right = ended.err.starts_with("ckptd: failed to ")
        && ended.err.lines().count() == 1
        && ended.err.contains(words);
    expect(right, || format!("not refused with {words:?}: {ended:?}"))
}

/// Nothing but whole jobs may be in the folder, so many.
pub fn expect_jobs(folder: &Path, count: usize) -> Result<(), Failure> {
    let names: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    let whole = names.iter().all(|entry| entry.path().join("job.json").exists());
    expect(whole && names.len() == count, || format!("{} holds {names:?}", folder.display()))
}

/// A job of one folder goes on in another, with its log, and in the same one under another name.
pub fn there_and_back(stage: &Stage) -> Result<(), Failure> {
    let file = archive(stage)?;
    let mode = own(fs::metadata(&file))?.permissions().mode() & 0o777;
    expect(mode == 0o600, || format!("the archive's mode is {mode:o}"))?;
    refused(stage.output(&["export", JOB, &text(&file)], "")?, "is there already")?;
    refused(stage.output(&["export", "j@7", "x"], "")?, "no checkpoint 7")?;
    let other = text(&stage.home.join("other"));
    let imported = stage.output(&["import", &text(&file), "--dir", &other], "")?.expect(0)?;
    expect(imported.out == "j\n" && imported.err.contains("ckptd restart j --dir"), || {
        format!("{imported:?}")
    })?;
    refused(stage.output(&["import", &text(&file)], "")?, "--name")?;
    let again = ["import", &text(&file), "--name", "again"];
    let imported = stage.output(&again, "")?.expect(0)?;
    expect(imported.out == "again\n", || format!("{imported:?}"))?;
    let verdicts = stage.json(&["verify", "again"])?;
    expect(verdicts[0]["verdict"] == "whole", || format!("{verdicts}"))?;
    own(fs::write(stage.home.join("go"), ""))?;
    for arguments in [&["restart", "j", "--dir", &other][..], &["restart", "again"]] {
        let ended = stage.output(arguments, "")?.expect(0)?;
        expect(ended.out == "right\n", || format!("{arguments:?}: {ended:?}"))?;
        stage.expect_gone()?;
    }
    let log = own(fs::read_to_string(stage.home.join("other/j-1/log")))?;
    expect(log.starts_with("ready\n") && log.contains("right\n"), || format!("log: {log:?}"))?;
    // From one command into the other, as between two machines.
    let mut from = stage.command(&["export", "again", "-"]);
    let mut from = own(from.stdout(Stdio::piped()).spawn())?;
    let third = text(&stage.home.join("third"));
    let mut to = stage.command(&["import", "-", "--dir", &third]);
    to.stdin(from.stdout.take().map_or(Stdio::null(), Stdio::from));
    let to = own(to.output())?;
    let out = String::from_utf8_lossy(&to.stdout).into_owned();
    expect(own(from.wait())?.success() && to.status.success() && out == "again\n", || {
        format!("{to:?}")
    })
}

/// What is no whole archive is refused in one line, and leaves nothing.
pub fn hostile(stage: &Stage) -> Result<(), Failure> {
    let file = archive(stage)?;
    let whole = own(fs::read(&file))?;
    let folder = stage.home.join("other");
    let state = text(&folder);
    let bad = stage.home.join("bad.tar.zst");
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    let longer = [whole.as_slice(), b"x"].concat();
    let cases: [(&str, &[u8], &str); 5] = [
        ("cut", &whole[..whole.len() - 100], "cut short"),
        ("flipped", &flipped, "ckptd: failed to import"),
        ("longer", &longer, "follows its end"),
        ("text", b"what is this", "no archive of 'ckptd export'"),
        ("empty", b"", "cut short"),
    ];
    for (name, bytes, words) in cases {
        own(fs::write(&bad, bytes))?;
        let ended = stage.output(&["import", &text(&bad), "--dir", &state], "")?;
        refused(ended, words).map_err(|f| Failure(format!("{name}: {f}")))?;
        expect_jobs(&folder, 0).or_else(|f| if folder.exists() { Err(f) } else { Ok(()) })?;
    }
    refused(stage.output(&["import", "no-such-file", "--dir", &state], "")?, "No such file")
}

/// An import that is interrupted leaves nothing, and what a killed one leaves the next one removes.
pub fn interrupted(stage: &Stage) -> Result<(), Failure> {
    use nix::sys::signal::Signal;
    let file = archive(stage)?;
    let whole = own(fs::read(&file))?;
    let folder = stage.home.join("other");
    let state = text(&folder);
    let half = || -> Result<std::process::Child, Failure> {
        let mut import = stage.command(&["import", "-", "--dir", &state]);
        let mut import = own(import.stdin(Stdio::piped()).stdout(Stdio::null()).spawn())?;
        if let Some(stdin) = import.stdin.as_mut() {
            own(stdin.write_all(&whole[..whole.len() - 200]))?;
        }
        let begun = || fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
        until("the import is under way", begun)?;
        Ok(import)
    };
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let mut import = half()?;
        let pid = nix::unistd::Pid::from_raw(import.id() as i32);
        nix::sys::signal::kill(pid, signal).map_err(|e| Failure(e.to_string()))?;
        let status = own(import.wait())?;
        expect(status.code() == Some(code), || format!("interrupted by {signal}: {status}"))?;
        expect_jobs(&folder, 0)?;
    }
    let mut import = half()?;
    own(import.kill().and_then(|()| import.wait()))?;
    let left = fs::read_dir(&folder).into_iter().flatten().count();
    expect(left == 1, || format!("{left} entries are left by a killed import"))?;
    let listed = stage.json(&["ls", "--dir", &state])?;
    expect(listed.as_array().is_some_and(Vec::is_empty), || format!("ls: {listed}"))?;
    let imported =
        stage.command(&["import", "-", "--dir", &state]).stdin(own(File::open(&file))?).output();
    expect(own(imported)?.status.success(), || "the next import failed".into())?;
    expect_jobs(&folder, 1)
}
