//! Tasks that wait for others: none begins before these have ended right, whatever is killed meanwhile.

use std::fs;
use std::path::Path;

use ckptd_tests::job::Failure;
use ckptd_tests::processes;
use serde_json::{Value, json};

use super::farms::{Farm, end_unrecorded};
use super::stage::{Stage, expect, own, until};

/// Writes a file in two halves, of files that have to be complete; says when it begins.
const STEP: &str = "out=$1; shift; echo $out >> begun\n\
    for file; do tail -n 1 $file | grep -qx end || { echo $out of $file >> incomplete; exit 9; }; done\n\
    { echo half of $out; sleep 0.1; cat /dev/null $@ | cksum; echo end; } > $out\n";
/// The same, for about five seconds, counting in memory.
const LONG: &str = "echo $1 >> begun; i=0; while [ $i -lt 100 ]; do i=$((i+1)); sleep 0.05; done\n\
    { cat $2 | cksum; echo $i; echo end; } > $1\n";
/// Images of the mosaic.
const IMAGES: usize = 8;

/// A workflow that is being made.
#[derive(Default)]
struct Draft {
    tasks: Vec<Value>,
    executed: Vec<Value>,
}

impl Draft {
    /// A task that does that; its number.
    fn task(&mut self, name: &str, program: &str, inputs: &[String], outputs: &[String]) -> usize {
        let number = self.tasks.len() + 1;
        let id = format!("{name}_ID{number:07}");
        self.tasks.push(json!({"name": id, "id": id, "parents": [], "children": [],
            "inputFiles": inputs, "outputFiles": outputs}));
        self.executed
            .push(json!({"id": id, "runtimeInSeconds": 0.1, "command": {"program": program}}));
        number
    }

    /// A task by the script.
    fn step(&mut self, name: &str, inputs: &[String], output: &str) -> String {
        let program = format!("sh step.sh {output} {}", inputs.join(" "));
        self.task(name, &program, inputs, &[output.to_owned()]);
        output.to_owned()
    }

    fn parent(&mut self, child: usize, parent: usize) {
        let id = self.tasks[parent - 1]["id"].clone();
        self.tasks[child - 1]["parents"]
            .as_array_mut()
            .into_iter()
            .for_each(|all| all.push(id.clone()));
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        let workflow = json!({"name": "w", "schemaVersion": "1.5", "workflow": {
            "specification": {"tasks": self.tasks, "files": []},
            "execution": {"makespanInSeconds": 0, "executedAt": "never", "tasks": self.executed}}});
        own(fs::write(path, workflow.to_string()))
    }
}

/// A mosaic of images as Montage makes it: 8 are projected, their overlaps fitted, the background evened out, all added up.
fn mosaic() -> Draft {
    let mut draft = Draft::default();
    let projected: Vec<String> =
        (0..IMAGES).map(|i| draft.step("mProject", &[], &format!("p{i}"))).collect();
    let mut fits = Vec::new();
    for (one, other) in (0..IMAGES).flat_map(|i| [(i, i + 1), (i, i + 2)]) {
        if other < IMAGES {
            let inputs = [projected[one].clone(), projected[other].clone()];
            fits.push(draft.step("mDiffFit", &inputs, &format!("fit-{one}-{other}")));
        }
    }
    let fits = draft.step("mConcatFit", &fits, "fits.tbl");
    let program = format!("sh long.sh corrections.tbl {fits}");
    draft.task("mBgModel", &program, &[fits], &["corrections.tbl".to_owned()]);
    let even = |draft: &mut Draft, i: usize| {
        let inputs = [projected[i].clone(), "corrections.tbl".to_owned()];
        draft.step("mBackground", &inputs, &format!("c{i}"))
    };
    let corrected: Vec<String> = (0..IMAGES).map(|i| even(&mut draft, i)).collect();
    let table = draft.step("mImgtbl", &corrected, "images.tbl");
    let all = [corrected, vec![table]].concat();
    let added = draft.step("mAdd", &all, "mosaic.fits");
    let small = draft.step("mShrink", &[added], "small.fits");
    draft.step("mJPEG", &[small], "mosaic.jpg");
    draft
}

fn prepared(stage: &Stage) -> Result<Farm<'_>, Failure> {
    own(fs::write(stage.home.join("step.sh"), STEP))?;
    own(fs::write(stage.home.join("long.sh"), LONG))?;
    Farm::new(stage)
}

fn begun(stage: &Stage, wanted: &str) -> usize {
    let all = fs::read_to_string(stage.home.join("begun")).unwrap_or_default();
    all.lines().filter(|line| *line == wanted).count()
}

/// Each task has a result behind those of all that it waits for.
fn expect_in_order(farm: &Farm<'_>, draft: &Draft) -> Result<(), Failure> {
    let text = own(fs::read_to_string(farm.results.join("results.jsonl")))?;
    let mut written: Vec<String> = Vec::new();
    for line in text.lines() {
        let result: Value =
            serde_json::from_str(line).map_err(|error| Failure(format!("{error}: {line}")))?;
        let task = result["task"].as_u64().unwrap_or(0) as usize;
        let task = task.checked_sub(1).and_then(|place| draft.tasks.get(place));
        let files = |key: &str| -> Vec<String> {
            let files = task.and_then(|task| task[key].as_array()).into_iter().flatten();
            files.filter_map(|file| file.as_str().map(str::to_owned)).collect()
        };
        let early = files("inputFiles").into_iter().find(|file| !written.contains(file));
        expect(early.is_none(), || format!("{result} has ended before {early:?} was there"))?;
        written.extend(files("outputFiles"));
    }
    expect(written.len() == draft.tasks.len(), || format!("{} results", written.len()))
}

/// A mosaic of 35 tasks, with a kill of everything while many are short, and another one while a long one has a checkpoint.
pub fn killed(stage: &Stage) -> Result<(), Failure> {
    let farm = prepared(stage)?;
    let draft = mosaic();
    draft.write(&stage.home.join("mosaic.json"))?;
    let clean = ["farm", "run", "--name", "clean", "--workflow", "mosaic.json", "--jobs", "4"];
    stage.output(&clean, "")?.expect(0)?;
    let made = own(fs::read(stage.home.join("mosaic.jpg")))?;
    own(fs::remove_file(stage.home.join("begun")))?;
    // What was there before is no reason to leave anything out.
    let words = ["--workflow", "mosaic.json", "--jobs", "4", "--checkpoint", "0.5"];
    let running = farm.start(&words)?;
    until("some have ended", || farm.results().is_ok_and(|results| results.len() >= 6))?;
    let mark = stage.home.display().to_string();
    processes::kill(&processes::marked(&mark));
    running.finish()?;
    stage.expect_gone()?;
    let again = stage.start(&["farm", "run", "--resume", "f"])?;
    until("the long one has begun", || begun(stage, "corrections.tbl") == 1)?;
    farm.until_kept(1)?;
    processes::kill(&processes::marked(&mark));
    again.finish()?;
    stage.expect_gone()?;
    expect(!stage.home.join("corrections.tbl").exists(), || "it is there too early".to_owned())?;
    let ended = farm.resume(&[], 0)?;
    expect(ended.err.contains("35 of 35 tasks have ended"), || format!("{ended:?}"))?;
    expect_in_order(&farm, &draft)?;
    let results = farm.results()?;
    let long = results.values().find(|result| result["id"] == "mBgModel_ID0000023");
    let long = long.cloned().unwrap_or_default();
    expect(long["restored"] == true && begun(stage, "corrections.tbl") == 1, || format!("{long}"))?;
    expect(!stage.home.join("incomplete").exists(), || "a file was read too early".to_owned())?;
    let again = own(fs::read(stage.home.join("mosaic.jpg")))?;
    expect(again == made, || "the mosaic is another".to_owned())?;
    stage.expect_gone()
}

/// A task that fails leaves no half of a file, those that wait for it are named, and all others run. Once its fault is
/// mended, these and no others are run.
pub fn failed(stage: &Stage) -> Result<(), Failure> {
    let farm = prepared(stage)?;
    let mut draft = Draft::default();
    let bad = "echo half > a; echo a >> begun; test -e mended && echo end >> a";
    draft.task("bad", bad, &[], &["a".to_owned()]);
    draft.step("after", &["a".to_owned()], "b");
    let late = draft.task("last", "echo last >> begun", &[], &[]);
    draft.parent(late, 2);
    draft.step("other", &[], "x");
    let empty = draft.task("empty", "test ! -e mended || echo end > y", &[], &["y".to_owned()]);
    draft.write(&stage.home.join("w.json"))?;
    // What was there before is not what the task has written.
    own(fs::write(stage.home.join("y"), "old")
        .and_then(|()| stage.account.give(&stage.home.join("y"))))?;
    let ended = farm.run(&["--workflow", "w.json", "--jobs", "1"], 4)?;
    for said in [
        "task 1 ended with status 1: echo half",
        "task 5 (empty_ID0000005) has ended without its file y",
        "2 tasks wait for ones that failed, and will not run; 'ckptd farm run --resume f --retry-failed'",
    ] {
        expect(ended.err.contains(said), || format!("{ended:?}"))?;
    }
    let results = farm.results()?;
    let of = |task: u64, key: &str| results.get(&task).map(|result| result[key].clone());
    let outcomes: Vec<_> = (1..=5).filter_map(|task| of(task, "outcome")).collect();
    expect(outcomes == ["exited", "skipped", "skipped", "exited", "no-output"], || {
        format!("{results:?}")
    })?;
    expect(of(3, "because_id") == Some("bad_ID0000001".into()), || format!("{results:?}"))?;
    expect(of(empty as u64, "status") == Some(1.into()), || format!("{results:?}"))?;
    for file in ["a", "b", "y"] {
        expect(!stage.home.join(file).exists(), || format!("{file} is there"))?;
    }
    let state = farm.state()?;
    let counted = [&state["right"], &state["failed"], &state["skipped"]];
    expect(state["state"] == "ended" && counted == [1, 2, 2], || format!("{state}"))?;
    let kinds = stage.json(&["farm", "status", "f"])?;
    let told = |kind: &Value| {
        ["tasks", "right", "failed", "skipped", "left"].map(|key| kind[key].as_u64().unwrap_or(99))
    };
    let told: Vec<_> = kinds.as_array().into_iter().flatten().map(told).collect();
    let expected =
        [[1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0]];
    expect(told == expected && kinds[0]["kind"] == "bad", || format!("{kinds}"))?;
    // Nothing is tried again unless somebody wants that.
    farm.resume(&[], 4)?;
    own(fs::write(stage.home.join("mended"), ""))?;
    expect(begun(stage, "a") == 1, || "it was tried again".to_owned())?;
    farm.resume(&["--retry-failed"], 0)?;
    let results = farm.results()?;
    expect(results.len() == 5 && results.values().all(|result| result["status"] == 0), || {
        format!("{results:?}")
    })?;
    let times = ["a", "b", "last", "x"].map(|file| begun(stage, file));
    expect(times == [2, 1, 1, 1], || format!("{times:?}"))?;
    stage.expect_gone()
}

/// What can't be run is refused in one line, before anything is begun, and its name is free again.
pub fn refused(stage: &Stage) -> Result<(), Failure> {
    let farm = prepared(stage)?;
    let file = stage.home.join("w.json");
    let refused = |draft: &Draft, said: &str| -> Result<(), Failure> {
        draft.write(&file)?;
        let refused = farm.run(&["--workflow", "w.json"], 125)?;
        let is_so = refused.err.contains(said) && refused.err.lines().count() == 1;
        expect(is_so, || format!("{said}: {refused:?}"))
    };
    let mut circle = Draft::default();
    circle.step("a", &["z".to_owned()], "x");
    circle.step("b", &["x".to_owned()], "y");
    circle.step("c", &["y".to_owned()], "z");
    refused(&circle, "tasks wait for each other in a circle: ")?;
    let mut twice = Draft::default();
    twice.step("a", &[], "x");
    twice.step("b", &[], "./x");
    refused(&twice, "file 'x' is written by two tasks, 'a_ID0000001' and 'b_ID0000002'")?;
    let mut outside = Draft::default();
    outside.step("a", &[], "../x");
    refused(&outside, "file '../x' of task 'a_ID0000001' is not within the working directory")?;
    let mut bare = Draft::default();
    bare.step("a", &[], "x");
    bare.executed.clear();
    refused(&bare, "task 'a_ID0000001' has no command")?;
    own(fs::write(&file, "echo one\necho two\n"))?;
    let plain = farm.run(&["--workflow", "w.json"], 125)?;
    expect(plain.err.contains("read the workflow w.json: "), || format!("{plain:?}"))?;
    farm.run(&["--workflow", "w.json", "true"], 2)?;
    expect(!stage.home.join("begun").exists(), || "something was begun".to_owned())?;
    expect(!stage.home.join("state/farms/f").exists(), || "a run is left".to_owned())
}

/// With one slot the order is seen: 1 and 2 first, then what waits for each.
pub fn ordered(stage: &Stage) -> Result<(), Failure> {
    prepared(stage)?;
    let mut draft = Draft::default();
    let say = |name: &str| format!("echo {name} >> begun");
    // Two short branches, and one that has a way before it.
    for (name, parent) in [("a", 0), ("b", 0), ("a1", 1), ("b1", 2), ("c", 0), ("c1", 5), ("c2", 6)]
    {
        let number = draft.task(name, &say(name), &[], &[]);
        if parent > 0 {
            draft.parent(number, parent);
        }
    }
    draft.write(&stage.home.join("w.json"))?;
    for (order, expected) in [
        ("fifo", "a b c a1 b1 c1 c2"),
        ("lifo", "a a1 b b1 c c1 c2"),
        ("lifo-hrf", "c c1 c2 a b b1 a1"),
    ] {
        let _ = fs::remove_file(stage.home.join("begun"));
        let words = ["farm", "run", "--workflow", "w.json", "--jobs", "1", "--order", order];
        stage.output(&words, "")?.expect(0)?;
        let all = own(fs::read_to_string(stage.home.join("begun")))?;
        let all: Vec<&str> = all.lines().collect();
        expect(all.join(" ") == expected, || format!("{order}: {all:?}"))?;
    }
    stage.expect_gone()
}

/// A page about a workflow with all that went wrong, and one about plain tasks.
pub fn reported(stage: &Stage) -> Result<(), Failure> {
    let farm = prepared(stage)?;
    let mut draft = Draft::default();
    for i in 0..6 {
        draft.step("mProject", &[], &format!("p{i}"));
    }
    draft.task("mFit", "exit 3", &["p0".to_owned()], &["<fit>".to_owned()]);
    draft.step("mAdd", &["<fit>".to_owned()], "all");
    draft.write(&stage.home.join("w.json"))?;
    farm.run(&["--workflow", "w.json", "--jobs", "2"], 2)?;
    let told = stage.output(&["farm", "report", "f"], "")?.expect(0)?;
    expect(told.out == "f.html\n", || format!("{told:?}"))?;
    let page = own(fs::read_to_string(stage.home.join("f.html")))?;
    let is_whole = |page: &str| {
        let alone = !page.contains("<script") && !page.contains("http") && !page.contains("<fit>");
        page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n") && alone
    };
    expect(is_whole(&page), || page.clone())?;
    for said in [
        "<td>ended with status 0</td><td>6</td>",
        "<td>failed</td><td>1</td>",
        "<td>skipped</td><td>1</td>",
        "<td>order</td><td>fifo</td>",
        "<td>7</td><td>mFit_ID0000007</td><td>ended with status 3</td>",
        "<td>8</td><td>mAdd_ID0000008</td><td>7 mFit_ID0000007</td>",
        "<td>mProject</td><td>6</td>",
        "what ran when",
        "how many ran at a time",
    ] {
        expect(page.contains(said), || format!("no {said} in {page}"))?;
    }
    expect(page.matches("<rect class=\"phase0\" x=").count() == 6, || page.clone())?;
    // Six that take a tenth of a second each, two at a time: both slots are in use most of the time.
    let use_of = page.split("<td>core use</td><td>").nth(1).and_then(|rest| rest.split(' ').next());
    let percent: f64 = use_of.and_then(|text| text.parse().ok()).unwrap_or(0.0);
    expect((30.0..=100.0).contains(&percent), || format!("{percent} in {page}"))?;

    let text: String = (1..=4000).map(|_| "true\n").collect();
    own(fs::write(stage.home.join("plain.txt"), text))?;
    let words = ["farm", "run", "--name", "p", "--jobs", "4", "--quiet", "plain.txt"];
    stage.output(&words, "")?.expect(0)?;
    let page = stage.output(&["farm", "report", "p", "--output", "-"], "")?.expect(0)?.out;
    let is_right =
        is_whole(&page) && page.contains("<td>4000</td>") && page.contains("<path class=\"runs\"");
    expect(is_right && page.len() < 1_000_000, || format!("{} bytes", page.len()))?;
    stage.output(&["farm", "report", "nobody"], "")?.expect(125)?;
    stage.expect_gone()
}

/// An end that nobody has recorded, and without the file that should be there, is none: the task goes on from its checkpoint.
pub fn without_file(stage: &Stage) -> Result<(), Failure> {
    let farm = prepared(stage)?;
    let mut draft = Draft::default();
    let program =
        "echo one >> begun; until [ -e go ]; do sleep 0.02; done; [ -e no ] || echo end > one";
    draft.task("wait", program, &[], &["one".to_owned()]);
    draft.step("after", &["one".to_owned()], "two");
    draft.write(&stage.home.join("w.json"))?;
    end_unrecorded(&farm, &["--workflow", "w.json"], || {
        own(fs::write(stage.home.join("no"), ""))?;
        own(fs::write(stage.home.join("go"), ""))
    })?;
    expect(!stage.home.join("one").exists(), || "it has written its file".to_owned())?;
    own(fs::remove_file(stage.home.join("no")))?;
    farm.resume(&[], 0)?;
    let results = farm.results()?;
    let is_right = results.len() == 2 && results[&1]["restored"] == true;
    expect(is_right, || format!("{results:?}"))?;
    expect(begun(stage, "one") == 1, || "it was begun anew".to_owned())?;
    expect_in_order(&farm, &draft)?;
    stage.expect_gone()
}
