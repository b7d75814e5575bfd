//! The library for C: its own test programs, the example, and what is killed meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ckptd_tests::job::Failure;
use ckptd_tests::processes;

use super::farms::Farm;
use super::stage::{Running, Stage, expect, own, until};

/// Flags of all that is compiled.
const FLAGS: &[&str] =
    &["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror"];

/// The library's folder.
fn library() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/c")
}

/// A case's folder with the library, functions and their programs.
struct Built<'a> {
    stage: &'a Stage,
    flags: Vec<String>,
    objects: Vec<PathBuf>,
    configuration: String,
}

impl<'a> Built<'a> {
    /// Compiles the library, with these flags, too.
    fn new(stage: &'a Stage, more: &[&str]) -> Result<Self, Failure> {
        let include = format!("-I{}", library().join("include").display());
        let flags = FLAGS.iter().chain(more).map(|flag| (*flag).to_owned());
        let mut flags: Vec<String> = flags.collect();
        flags.push(include);
        let objects = stage.home.join("objects");
        own(fs::create_dir(&objects))?;
        let sources = own(fs::read_dir(library().join("src")))?;
        let sources = sources.flatten().map(|entry| entry.path());
        let sources: Vec<_> =
            sources.filter(|path| path.extension().is_some_and(|end| end == "c")).collect();
        let mut command = Command::new("cc");
        command.args(&flags).arg("-include").arg(library().join("src/names.h"));
        compile(command.arg("-c").args(&sources).current_dir(&objects))?;
        let objects = own(fs::read_dir(&objects))?.flatten().map(|entry| entry.path()).collect();
        let functions = stage.home.join("functions");
        own(fs::create_dir(&functions).and_then(|()| stage.account.give(&functions)))?;
        let configuration =
            format!("# Two at a time.\nfarm f\njobs 2\nfunctions {}\n", functions.display());
        own(fs::write(stage.home.join("grpc.conf"), configuration))?;
        Ok(Self { stage, flags, objects, configuration: "grpc.conf".to_owned() })
    }

    /// Links a program with the library.
    fn link(&self, name: &str, sources: &[PathBuf]) -> Result<PathBuf, Failure> {
        let program = self.stage.home.join(name);
        let mut command = Command::new("cc");
        command.args(&self.flags);
        if name == "formats" {
            // What is within the library has other names there.
            command.arg("-include").arg(library().join("src/names.h"));
        }
        command.arg("-o").arg(&program).args(sources).args(&self.objects);
        compile(&mut command)?;
        Ok(program)
    }

    /// Makes functions known that a program made of their stub and this source runs; `by` runs it, if given.
    fn register(&self, description: &str, source: &str, by: Option<&Path>) -> Result<(), Failure> {
        let description = library().join(description).display().to_string();
        let stub = self.stage.output(&["farm", "register", "--stub", &description], "")?;
        let name = Path::new(source).file_stem().unwrap_or_default().to_string_lossy();
        let name = if by.is_some() { format!("bad_{name}") } else { name.into_owned() };
        let main = self.stage.home.join(format!("{name}_server.c"));
        own(fs::write(&main, stub.expect(0)?.out))?;
        let program = self.link(&format!("{name}_server"), &[main, library().join(source)])?;
        let program = by.unwrap_or(&program).display().to_string();
        let words = ["farm", "register", &description, "--program", &program];
        let words = [&words[..], &["--folder", "functions"]].concat();
        self.stage.output(&words, "")?.expect(0).map(drop)
    }

    /// The functions of the tests, and those whose results are spoilt.
    fn register_tests(&self) -> Result<(), Failure> {
        self.register("tests/t.idl", "tests/t.c", None)?;
        let script = own(fs::read_to_string(library().join("tests/bad.sh")))?;
        let (first, rest) = script.split_once('\n').unwrap_or_default();
        let home = self.stage.home.display();
        let script = format!("{first}\nSERVER={home}/bad_t_server HERE={home}\n{rest}");
        let path = self.stage.home.join("bad.sh");
        own(fs::write(&path, script))?;
        own(fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)))?;
        self.register("tests/bad.idl", "tests/t.c", Some(&path))
    }

    /// One of its programs, as the user calls it.
    fn command(&self, program: &Path, words: &[&str]) -> Command {
        let mut all = vec![program.display().to_string(), self.configuration.clone()];
        all.extend(words.iter().map(|word| (*word).to_owned()));
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        let mut command = self.stage.alone(&all);
        command.env("CKPTD", self.stage.ckptd()).env("CKPTD_DIR", self.stage.home.join("state"));
        command.current_dir(&self.stage.home);
        command
    }

    /// Runs one of the library's test programs.
    fn run(&self, name: &str, words: &[&str]) -> Result<(), Failure> {
        let program = self.link(name, &[library().join(format!("tests/{name}.c"))])?;
        let ran = Running::start(self.command(&program, words))?.finish()?.expect(0)?;
        expect(ran.out == "right\n" && ran.err.is_empty(), || format!("{name}: {ran:?}"))
    }

    /// All of them; no file of a call may be left, and nothing that runs.
    fn run_all(&self) -> Result<(), Failure> {
        self.register_tests()?;
        self.run("formats", &[])?;
        self.run("calls", &[])?;
        self.run("errors", &["functions"])?;
        self.run("groups", &["."])?;
        self.run("threads", &[])?;
        self.end()
    }

    fn end(&self) -> Result<(), Failure> {
        let calls = self.stage.home.join("state/farms/f/calls");
        expect(!calls.exists(), || "folders of calls are left".to_owned())?;
        self.stage.output(&["farm", "stop", "f"], "")?.expect(0)?;
        self.stage.expect_gone()
    }
}

fn compile(command: &mut Command) -> Result<(), Failure> {
    let compiled = own(command.output())?;
    let said = || format!("{command:?}: {}", String::from_utf8_lossy(&compiled.stderr));
    expect(compiled.status.success(), said)
}

/// Calls of every kind, everything that can go wrong, groups, threads.
pub fn works(stage: &Stage) -> Result<(), Failure> {
    Built::new(stage, &[])?.run_all()
}

/// The same with the compiler's sanitizers, where it has them; at the same time, since all of them wait most of the time.
pub fn sanitized(stage: &Stage) -> Result<(), Failure> {
    const ALL: [(&str, &[&str]); 2] = [
        ("address", &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]),
        ("thread", &["-fsanitize=thread"]),
    ];
    std::thread::scope(|scope| {
        let all = ALL.map(|(name, flags)| scope.spawn(move || sanitized_by(stage, name, flags)));
        let over = || Failure("its thread has panicked".to_owned());
        all.into_iter().try_for_each(|one| one.join().map_err(|_| over())?)
    })
}

fn sanitized_by(stage: &Stage, name: &str, flags: &[&str]) -> Result<(), Failure> {
    let stage = Stage::new(stage.ckptd(), stage.account, &stage.home.join(name))?;
    let (probe, program) = (stage.home.join("probe.c"), stage.home.join("probe"));
    own(fs::write(&probe, "int main(void) { return 0; }\n"))?;
    let mut command = Command::new("cc");
    command.args(flags).arg("-o").arg(&program).arg(&probe);
    let has = own(command.output())?.status.success();
    if !(has && own(Command::new(&program).output())?.status.success()) {
        println!("     the compiler has no sanitizer {name} that runs here");
        return Ok(());
    }
    Built::new(&stage, flags)?.run_all()
}

/// The processes of the case whose command lines have this in them.
fn running(stage: &Stage, words: &str) -> Vec<i32> {
    let mark = stage.home.display().to_string();
    let mut found = processes::marked(&mark);
    found.retain(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
    });
    found
}

/// The example with its functions.
struct Pi<'a> {
    built: Built<'a>,
    program: PathBuf,
}

impl<'a> Pi<'a> {
    fn new(stage: &'a Stage) -> Result<Self, Failure> {
        let built = Built::new(stage, &[])?;
        built.register("examples/pi.idl", "examples/pi_trial.c", None)?;
        let program = built.link("pi", &[library().join("examples/pi.c")])?;
        Ok(Self { built, program })
    }

    fn start(&self, calls: &str, times: &str) -> Result<Running, Failure> {
        let stage = self.built.stage;
        let mut command =
            stage.alone(&[&self.program.display().to_string(), calls, times, "grpc.conf"]);
        command.env("CKPTD", stage.ckptd()).env("CKPTD_DIR", stage.home.join("state"));
        command.current_dir(&stage.home);
        Running::start(command)
    }

    /// Runs it to its end: what it has printed.
    fn run(&self, calls: &str, times: &str) -> Result<String, Failure> {
        let ran = self.start(calls, times)?.finish()?.expect(0)?;
        let is_right = ran.out.starts_with(&format!("{calls} calls, "))
            && ran.out.contains(" points, pi is about 3.14");
        expect(is_right, || format!("{ran:?}")).map(|()| ran.out)
    }

    fn until_calls_run(&self) -> Result<(), Failure> {
        until("calls run", || running(self.built.stage, "pi_trial_server").len() == 2)
    }
}

/// Kills all of the farm and the programs of functions that it runs.
fn kill_all(stage: &Stage, program: &str) {
    let mut all = running(stage, program);
    all.extend(running(stage, "ckptd farm"));
    processes::kill(&all);
}

/// The example: whatever of the farm is killed meanwhile, each call counts once.
pub fn killed(stage: &Stage) -> Result<(), Failure> {
    let pi = Pi::new(stage)?;
    // So many that each takes a second or two.
    let (calls, times) = ("12", "200000000");
    let expected = pi.run(calls, times)?;
    let disturbed = pi.start(calls, times)?;
    for words in ["ckptd farm work", "ckptd farm serve"] {
        pi.until_calls_run()?;
        // Whoever submits a call at that moment begins another one at once.
        let worker = running(stage, "ckptd farm work");
        processes::kill(&running(stage, words));
        until("its worker is gone", || {
            running(stage, "ckptd farm work").iter().all(|pid| !worker.contains(pid))
        })?;
    }
    pi.until_calls_run()?;
    kill_all(stage, "pi_trial_server");
    let disturbed = disturbed.finish()?.expect(0)?;
    expect(disturbed.out == expected, || format!("{disturbed:?} is not {expected:?}"))?;
    pi.built.end()
}

/// The same at many moments: also while calls are submitted, and while the farm is started.
pub fn killed_often(stage: &Stage) -> Result<(), Failure> {
    let pi = Pi::new(stage)?;
    let (calls, times) = ("60", "5000000");
    let expected = pi.run(calls, times)?;
    let mut disturbed = pi.start(calls, times)?;
    // Behind grpc_initialize, which fails where ckptd is killed.
    pi.until_calls_run()?;
    for round in 0..40 {
        std::thread::sleep(std::time::Duration::from_millis(20 + round * 67 % 350));
        if own(disturbed.child.try_wait())?.is_some() {
            break;
        }
        kill_all(stage, "pi_trial_server");
    }
    let disturbed = disturbed.finish()?.expect(0)?;
    expect(disturbed.out == expected, || format!("{disturbed:?} is not {expected:?}"))?;
    pi.built.end()
}

/// The same with calls that go on from their checkpoints.
pub fn checkpointed(stage: &Stage) -> Result<(), Failure> {
    let pi = Pi::new(stage)?;
    let mut farm = Farm::new(stage)?;
    farm.results = stage.home.join("state/farms/f/results");
    let (calls, times) = ("2", "500000000");
    stage.output(&["farm", "start", "--checkpoint", "none", "f"], "")?.expect(0)?;
    let expected = pi.run(calls, times)?;
    stage.output(&["farm", "stop", "f"], "")?.expect(0)?;
    stage.output(&["farm", "start", "--checkpoint", "0.5", "f"], "")?.expect(0)?;
    let disturbed = pi.start(calls, times)?;
    farm.until_kept(2)?;
    kill_all(stage, "pi_trial_server");
    let disturbed = disturbed.finish()?.expect(0)?;
    expect(disturbed.out == expected, || format!("{disturbed:?} is not {expected:?}"))?;
    let results = farm.results()?;
    for task in [3, 4] {
        let is_restored = results.get(&task).is_some_and(|end| end["restored"] == true);
        expect(is_restored, || format!("task {task} began anew: {results:?}"))?;
    }
    pi.built.end()
}

/// A group whose servers are all taken goes on once there are more; a program that waits costs next to nothing.
pub fn more_servers(stage: &Stage) -> Result<(), Failure> {
    let built = Built::new(stage, &[])?;
    built.register_tests()?;
    let program = built.link("servers", &[library().join("tests/servers.c")])?;
    let waits = Running::start(built.command(&program, &[]))?;
    waits.wait_for("call 2\n")?;
    // Time for a call that does not wait.
    std::thread::sleep(std::time::Duration::from_secs(3));
    expect(!waits.text().0.contains("call 3"), || "it did not wait".to_owned())?;
    stage.output(&["farm", "start", "--jobs", "3", "f"], "")?.expect(0)?;
    let ended = waits.finish()?.expect(0)?;
    expect(ended.out.ends_with("call 3\nright\n"), || format!("{ended:?}"))?;
    built.end()
}

/// A farm that is removed fails its calls; one that nobody may start keeps them.
pub fn missing(stage: &Stage) -> Result<(), Failure> {
    let mut built = Built::new(stage, &[])?;
    built.register_tests()?;
    let program = built.link("farmless", &[library().join("tests/farmless.c")])?;
    let running = Running::start(built.command(&program, &["removed"]))?;
    running.wait_for("runs\n")?;
    stage.output(&["farm", "stop", "--now", "f"], "")?.expect(0)?;
    // Started again by the program in time, it can't be removed: that it can't is tried again.
    until("the farm can be removed", || {
        let _ = stage.output(&["farm", "stop", "--now", "f"], "");
        stage.output(&["farm", "rm", "f"], "").is_ok_and(|removed| removed.status.success())
    })?;
    let ended = running.finish()?.expect(0)?;
    expect(ended.out.ends_with("right\n"), || format!("{ended:?}"))?;
    let text = own(fs::read_to_string(stage.home.join("grpc.conf")))?;
    own(fs::write(stage.home.join("no.conf"), text.replace("jobs 2", "start no")))?;
    built.configuration = "no.conf".to_owned();
    stage.output(&["farm", "start", "f"], "")?.expect(0)?;
    let running = Running::start(built.command(&program, &["stopped"]))?;
    running.wait_for("runs\n")?;
    stage.output(&["farm", "stop", "f"], "")?.expect(0)?;
    // It would have been started by then.
    std::thread::sleep(std::time::Duration::from_secs(6));
    let status = stage.json(&["farm", "status", "f"])?;
    expect(status["state"] == "interrupted", || format!("{status}"))?;
    stage.output(&["farm", "start", "f"], "")?.expect(0)?;
    let ended = running.finish()?.expect(0)?;
    expect(ended.out.ends_with("right\n"), || format!("{ended:?}"))?;
    built.end()
}

/// A call that can't be brought back from its checkpoint fails, and is not begun anew.
pub fn stuck(stage: &Stage) -> Result<(), Failure> {
    let built = Built::new(stage, &[])?;
    built.register_tests()?;
    let program = built.link("farmless", &[library().join("tests/farmless.c")])?;
    let farm = Farm::new(stage)?;
    // One that ends at once for want of others.
    let words = ["farm", "start", "--checkpoint", "0.5", "--idle", "0.05", "f"];
    stage.output(&words, "")?.expect(0)?;
    let waits = Running::start(built.command(&program, &["stuck"]))?;
    farm.until_kept_twice()?;
    kill_all(stage, "t_server");
    let checkpoints = stage.home.join("state/farms/f/jobs/t1.1-1/checkpoints");
    for checkpoint in own(fs::read_dir(&checkpoints))?.flatten() {
        own(fs::write(checkpoint.path().join("graph.json"), "{}"))?;
    }
    let ended = waits.finish()?.expect(0)?;
    expect(ended.out == "runs\nright\n", || format!("{ended:?}"))?;
    stage.output(&["farm", "stop", "--now", "f"], "")?;
    stage.expect_gone()
}

/// What can't be registered is told with its place.
pub fn refused(stage: &Stage) -> Result<(), Failure> {
    let file = stage.home.join("m.idl");
    let file = file.display().to_string();
    for (text, program, said) in [
        ("Module m;\nDefine f(OUT int n) Calls \"C\" f(n);", "/bin/sh", "m.idl:2:18: n has to be"),
        ("Module m;\nDefine f(IN int n)", "/bin/sh", "m.idl:2:19: there is the end where"),
        ("Module m; Define f() Calls \"C\" f();", "no-such", "failed to find no-such"),
        ("Module m; Define f() Calls \"C\" f();", "m.idl", "it is no program that can be executed"),
    ] {
        own(fs::write(&file, text))?;
        let words = ["farm", "register", &file, "--program", program, "--folder", "made"];
        let refused = stage.output(&words, "")?.expect(125)?;
        expect(refused.err.contains(said), || format!("{refused:?}"))?;
    }
    let refused = stage.output(&["farm", "register", "no.idl", "--stub"], "")?.expect(125)?;
    expect(refused.err.contains("failed to read no.idl"), || format!("{refused:?}"))?;
    stage.output(&["farm", "register", &file], "")?.expect(2)?;
    expect(!stage.home.join("made").exists(), || "something was registered".to_owned())?;
    let words = ["farm", "register", &file, "--program", "/bin/sh"];
    let made = stage.output(&words, "")?.expect(0)?;
    expect(made.out == "m/f\n", || format!("{made:?}"))?;
    let written = stage.home.join(".local/share/ckptd/farm/functions/m/f");
    expect(written.exists(), || "it is not there".to_owned())
}
