//! Files outside of the session directories that have changed since the checkpoint.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ckptd_tests::job::Failure;
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};

use super::stage::{JOB, Running, Stage, expect, own};

/// A job that appends to one file and reads another, both held open.
struct Held<'a> {
    stage: &'a Stage,
    written: PathBuf,
    read: PathBuf,
}

impl<'a> Held<'a> {
    /// Runs it until both files are open, takes a checkpoint and kills it.
    fn new(stage: &'a Stage) -> Result<Held<'a>, Failure> {
        Self::with(stage, &[])
    }

    fn with(stage: &'a Stage, options: &[&str]) -> Result<Held<'a>, Failure> {
        let folder = stage.outside.path();
        let held = Held { stage, written: folder.join("written"), read: folder.join("read") };
        own(fs::write(&held.read, "first\nsecond\n"))?;
        let script = format!(
            "exec 5>>{} 6<{}; echo one >&5; read line <&6; echo $line; \
             while [ ! -e go ]; do sleep 0.02; done; echo two >&5; read line <&6; echo $line",
            held.written.display(),
            held.read.display()
        );
        let run = ["run", "--interval", "0", "--name", JOB];
        let mut running =
            stage.start(&[&run[..], options, &["--", "sh", "-c", &script]].concat())?;
        stage.until_up(&mut running)?;
        running.wait_for("first")?;
        stage.checkpoint()?;
        running.kill()?;
        stage.expect_gone()?;
        Ok(held)
    }

    /// The restart is refused in one line that names the file.
    fn refused(&self, path: &std::path::Path) -> Result<(), Failure> {
        self.refused_with(&[], path)
    }

    fn refused_with(&self, options: &[&str], path: &std::path::Path) -> Result<(), Failure> {
        let restart = [&["restart", JOB], options].concat();
        let ended = self.stage.output(&restart, "")?.expect(125)?;
        let name = path.display().to_string();
        let right = ended.err.lines().count() == 1 && ended.err.contains(&name);
        expect(right, || format!("not one line that names {name}: {ended:?}"))?;
        self.stage.expect_gone()
    }

    fn finish(&self, running: Running, line: &str) -> Result<(), Failure> {
        own(fs::write(self.stage.home.join("go"), ""))?;
        let ended = running.finish()?.expect(0)?;
        expect(ended.out == format!("{line}\n"), || format!("{ended:?}"))?;
        let written = own(fs::read_to_string(&self.written))?;
        expect(written == "one\ntwo\n", || format!("the file is {written:?}"))?;
        self.stage.expect_gone()
    }
}

/// A file that was appended to is put back, and its tail is kept and told of.
pub fn grown(stage: &Stage) -> Result<(), Failure> {
    let held = Held::new(stage)?;
    own(fs::write(&held.written, "one\nlost work\n"))?;
    let running = stage.restart(&[])?;
    let said = running.text().1;
    let name = held.written.display().to_string();
    let mut tails = own(fs::read_dir(stage.outside.path()))?.flatten().map(|e| e.path());
    let tail = tails.find(|p| fs::read_to_string(p).is_ok_and(|text| text == "lost work\n"));
    expect(tail.is_some() && said.contains(&name), || format!("{tail:?}, said {said:?}"))?;
    held.finish(running, "second")
}

/// A file that was written to and is shorter now.
pub fn shorter(stage: &Stage) -> Result<(), Failure> {
    let held = Held::new(stage)?;
    own(fs::write(&held.written, "o"))?;
    held.refused(&held.written)
}

/// A file that was read and is another now: refused, and taken as it is with --force.
pub fn changed(stage: &Stage) -> Result<(), Failure> {
    let held = Held::new(stage)?;
    own(fs::write(&held.read, "FIRST\nSECOND\nTHIRD\n"))?;
    held.refused(&held.read)?;
    let running = stage.restart(&["--force"])?;
    held.finish(running, "SECOND")
}

/// A file that was read is told by what the user wants: its content, its time, or its size alone.
pub fn checked(stage: &Stage) -> Result<(), Failure> {
    let held = Held::with(stage, &["--file-check", "hash"])?;
    let modified = own(fs::metadata(&held.read).and_then(|found| found.modified()))?;
    let write = |text: &str| own(fs::write(&held.read, text));
    let put_time = |time| {
        let file = own(fs::File::options().write(true).open(&held.read))?;
        own(file.set_modified(time))
    };
    let runs = |options: &[&str]| {
        stage.restart(options)?.kill()?;
        stage.expect_gone()
    };
    // Another content of the same size and time.
    write("FIRST\nSECOND\n")?;
    put_time(modified)?;
    held.refused(&held.read)?;
    runs(&["--file-check", "mtime"])?;
    // The old content, and another time.
    write("first\nsecond\n")?;
    put_time(modified + Duration::from_secs(5))?;
    held.refused_with(&["--file-check", "mtime"], &held.read)?;
    runs(&[])?;
    // Neither.
    write("FIRST\nSECOND\n")?;
    held.refused(&held.read)?;
    let running = stage.restart(&["--file-check", "size"])?;
    held.finish(running, "SECOND")
}

/// Files that are gone; put back, the restart works.
pub fn missing(stage: &Stage) -> Result<(), Failure> {
    let held = Held::new(stage)?;
    for path in [&held.read, &held.written] {
        let aside = path.with_extension("aside");
        own(fs::rename(path, &aside))?;
        held.refused(path)?;
        own(fs::rename(&aside, path))?;
    }
    let running = stage.restart(&[])?;
    held.finish(running, "second")
}

/// A job that has used most of the descriptors that it may have is brought back under the same limit.
pub fn many_descriptors(stage: &Stage) -> Result<(), Failure> {
    let limited = ["bash", "-c", "ulimit -n 1000; exec \"$@\"", "bash"];
    let script = "for i in {1..700}; do exec {fd}<data; done; \
         echo open; while [ ! -e go ]; do sleep 0.02; done; \
         for i in {1..700}; do read -r -N 1 -u $((fd - 700 + i)) x || exit 3; done; echo done";
    own(fs::write(stage.home.join("data"), "x".repeat(1000)))?;
    let job = ["run", "--interval", "0", "--name", JOB, "--", "bash", "-c", script];
    let start = |arguments: &[&str]| Running::start(stage.wrapped(&limited, arguments));
    let running = start(&job)?;
    running.wait_for("open")?;
    stage.checkpoint()?;
    running.kill()?;
    stage.expect_gone()?;
    let mut running = start(&["restart", JOB])?;
    stage.until_up(&mut running)?;
    own(fs::write(stage.home.join("go"), ""))?;
    let ended = running.finish()?.expect(0)?;
    expect(ended.out == "done\n", || format!("{ended:?}"))?;
    stage.expect_gone()
}

/// A folder given by --session is, after a restart, what it was at the checkpoint; what does not fit is named.
pub fn session(stage: &Stage) -> Result<(), Failure> {
    let folder = stage.outside.path().join("data");
    own(fs::create_dir(&folder))?;
    own(fs::write(folder.join("small"), "before"))?;
    own(fs::write(folder.join("large"), vec![7; 20_000]))?;
    for path in [&folder, &folder.join("small"), &folder.join("large")] {
        own(stage.account.give(path))?;
    }
    let data = folder.display().to_string();
    let mut running = stage.start(&[
        "run",
        "--interval",
        "0",
        "--name",
        JOB,
        "--session",
        &data,
        "--files-limit",
        "10K",
        "--",
        "sh",
        "-c",
        "echo up; while [ ! -e go ]; do sleep 0.02; done; cat \"$0/small\"; ls \"$0\"",
        &data,
    ])?;
    stage.until_up(&mut running)?;
    running.wait_for("up")?;
    stage.checkpoint()?;
    let large = format!("{data}/large");
    let named = || running.text().1.contains(&large);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !named() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    expect(named(), || format!("{large} is not named: {:?}", running.text()))?;
    running.kill()?;
    stage.expect_gone()?;
    own(fs::write(folder.join("small"), "after, and longer"))?;
    own(fs::write(folder.join("large"), "changed"))?;
    own(fs::create_dir_all(folder.join("made/since")))?;
    for path in ["made", "made/since"] {
        own(stage.account.give(&folder.join(path)))?;
    }
    let running = stage.restart(&[])?;
    own(fs::write(stage.home.join("go"), ""))?;
    let ended = running.finish()?.expect(0)?;
    expect(ended.out == "beforelarge\nsmall\n", || format!("{ended:?}"))?;
    let large = own(fs::read_to_string(&large))?;
    expect(large == "changed", || "what did not travel was touched".to_owned())?;
    stage.expect_gone()
}

/// A file in a session directory that others use, too: a restart does not write to one that is as it was, and of one that has
/// changed only what differs.
pub fn shared(stage: &Stage) -> Result<(), Failure> {
    let [same, changed] = ["same", "changed"].map(|name| stage.home.join(name));
    for path in [&same, &changed] {
        own(fs::write(path, "first\nsecond\n"))?;
        own(stage.account.give(path))?;
    }
    let script = format!(
        "exec 5<{} 6<{}; read line <&5; read line <&6; echo $line; while [ ! -e go ]; do sleep 0.02; done; cat <&5; cat <&6",
        same.display(),
        changed.display()
    );
    let run = ["run", "--interval", "0", "--name", JOB, "--", "sh", "-c", &script];
    let mut running = stage.start(&run)?;
    stage.until_up(&mut running)?;
    running.wait_for("first")?;
    stage.checkpoint()?;
    running.kill()?;
    stage.expect_gone()?;
    own(fs::write(&changed, "FIRST\nsecond\nthird\n"))?;
    let watch = Changes::of(&same)?;
    let running = stage.restart(&[])?;
    own(fs::write(stage.home.join("go"), ""))?;
    let ended = running.finish()?.expect(0)?;
    expect(ended.out == "second\nsecond\n", || format!("{ended:?}"))?;
    for path in [&same, &changed] {
        let content = own(fs::read_to_string(path))?;
        expect(content == "first\nsecond\n", || format!("{}: {content:?}", path.display()))?;
    }
    let told = watch.map_or(Ok(false), |watch| watch.any())?;
    expect(!told, || "a file that was as before was written to".to_owned())?;
    stage.expect_gone()
}

/// Whether anybody has changed a file.
struct Changes(Fanotify);

impl Changes {
    /// From now on; `None`: an ordinary user's suite, which is told of other processes less.
    fn of(path: &Path) -> Result<Option<Self>, Failure> {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_NONBLOCK | InitFlags::FAN_CLOEXEC;
        let watch = match Fanotify::init(flags, EventFFlags::O_RDONLY) {
            Ok(watch) => watch,
            Err(Errno::EPERM | Errno::ENOSYS) => return Ok(None),
            Err(errno) => return Err(Failure(format!("fanotify_init: {errno}"))),
        };
        let wanted = MaskFlags::FAN_MODIFY;
        watch
            .mark(MarkFlags::FAN_MARK_ADD, wanted, AT_FDCWD, Some(path))
            .map_err(|errno| Failure(format!("fanotify_mark: {errno}")))?;
        Ok(Some(Self(watch)))
    }

    fn any(&self) -> Result<bool, Failure> {
        match self.0.read_events() {
            Ok(events) => Ok(!events.is_empty()),
            Err(Errno::EAGAIN) => Ok(false),
            Err(errno) => Err(Failure(format!("fanotify: {errno}"))),
        }
    }
}

/// A job's own $TMPDIR goes with the job, and an imported copy of the job does not use it beside the original.
pub fn temporary(stage: &Stage) -> Result<(), Failure> {
    const LOOP: &str = "mkdir $TMPDIR/inner; echo kept >$TMPDIR/inner/file; ln -s $HOME $TMPDIR/link; echo $TMPDIR >where; \
        echo up; while [ ! -e go ]; do sleep 0.02; done; cat $TMPDIR/inner/file";
    let mut running = stage.run(&["sh", "-c", LOOP])?;
    stage.until_up(&mut running)?;
    running.wait_for("up")?;
    stage.checkpoint()?;
    let folder = own(fs::read_to_string(stage.home.join("where")))?.trim().to_owned();
    let file = format!("{folder}/inner/file");
    let archive = stage.home.join("job.tar.zst").display().to_string();
    stage.output(&["export", JOB, &archive], "")?.expect(0)?;
    stage.output(&["import", &archive, "--name", "copy"], "")?.expect(0)?;
    // Neither its restart nor its removal touches what the original has.
    own(fs::write(&file, "changed"))?;
    let refused = stage.output(&["restart", "copy"], "")?.expect(125)?;
    expect(refused.err.lines().count() == 1 && refused.err.contains("is in use by job"), || {
        format!("{refused:?}")
    })?;
    stage.output(&["rm", "copy"], "")?.expect(0)?;
    expect(fs::read_to_string(&file).is_ok_and(|text| text == "changed"), || {
        format!("{file} is touched")
    })?;
    stage.output(&["import", &archive, "--name", "copy"], "")?.expect(0)?;
    running.kill()?;
    stage.expect_gone()?;
    own(fs::write(stage.home.join("go"), ""))?;
    for job in ["copy", JOB] {
        let ended = stage.output(&["restart", job], "")?.expect(0)?;
        expect(ended.out.contains("kept"), || format!("{ended:?}"))?;
    }
    stage.output(&["rm", JOB], "")?.expect(0)?;
    expect(Path::new(&file).exists(), || format!("{file} is the copy's, too"))?;
    stage.output(&["rm", "copy"], "")?.expect(0)?;
    expect(!Path::new(&folder).exists(), || format!("{folder} is left"))?;
    expect(stage.home.join("where").exists(), || "a link was followed".to_owned())
}
