//! Many tasks on the machines of a cluster: each ends once, with all that it has written, whatever becomes of machines, of the
//! coordinator, and of who looks after them.

use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::{CKPTD_DIR, WORK, until};
use crate::job::Failure;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "farm-nodes",
        about: "tasks of a farm on machines of which one is lost, one leaves and one joins: each ends once, from its checkpoint",
        run: nodes,
    },
    Case {
        name: "farm-killed",
        about: "tasks run on while the farm's worker and the coordinator are killed; the run goes on with them, and ends them",
        run: killed,
    },
    Case {
        name: "farm-ends",
        about: "tasks of a farm on a cluster: statuses, retries, timeouts, cancelling, and last checkpoints at its end",
        run: ends,
    },
    Case {
        name: "stop-stubborn",
        about: "a job that ignores SIGTERM ends by 'ckptd stop', and a task that does so by its farm",
        run: stubborn,
    },
];

/// Counts to its first argument, and tells each number to both streams behind its second.
const COUNT: &str = "\
#!/bin/sh
i=0
while [ $i -lt $1 ]; do
    i=$((i + 1))
    echo \"$2 $i\"
    echo \"$2 error $i\" >&2
    sleep 0.25
done
";
/// How often each task counts.
const STEPS: usize = 48;

/// What the farm of that name on node1 has kept.
fn results(ckptd: &Ckptd, farm: &str) -> PathBuf {
    let inside = format!("{CKPTD_DIR}/farms/{farm}/results");
    ckptd.node(1).disk().join(inside.trim_start_matches("/mnt/"))
}

/// How tasks have ended, by their numbers. None is there twice.
fn ended(ckptd: &Ckptd, farm: &str) -> Result<BTreeMap<u64, Value>, Failure> {
    let path = results(ckptd, farm).join("results.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let value: Value =
            serde_json::from_str(line).map_err(|error| Failure(format!("{line}: {error}")))?;
        let task = value["task"].as_u64().unwrap_or(0);
        let text = format!("task {task} has ended twice: {line}");
        check(all.insert(task, value).is_none(), || text)?;
    }
    Ok(all)
}

/// Each of so many tasks has ended right, and has written each number once and in order.
fn are_right(ckptd: &Ckptd, farm: &str, tasks: usize) -> Result<(), Failure> {
    let ended = ended(ckptd, farm)?;
    check(ended.len() == tasks, || format!("{} of {tasks} tasks have ended", ended.len()))?;
    for (task, value) in &ended {
        check(value["status"] == 0, || format!("{value}"))?;
        for (stream, word) in [("out", ""), ("err", "error ")] {
            let path = results(ckptd, farm).join(format!("{task}.{stream}"));
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let whole: String = (1..=STEPS).map(|step| format!("t{task} {word}{step}\n")).collect();
            check(text == whole, || format!("{}: {text}", path.display()))?;
        }
    }
    Ok(())
}

/// Nothing of a farm is left on the cluster.
fn are_gone(ckptd: &Ckptd) -> Result<(), Failure> {
    until("no job is left", LIMIT, || {
        let jobs = ckptd.node(1).must_run(&["ckptd", "ls", "--json"])?;
        Ok((jobs.trim() == "[]").then_some(()))
    })
}

/// Where parts of jobs are, by the listing.
fn instances(ckptd: &Ckptd, node: &str) -> Result<Vec<String>, Failure> {
    let nodes = ckptd.node(1).must_run(&["ckptd", "nodes", "--json"])?;
    let nodes: Value =
        serde_json::from_str(&nodes).map_err(|error| Failure(format!("{nodes}: {error}")))?;
    let all = nodes.as_array().into_iter().flatten().find(|member| member["name"] == node);
    let all = all.and_then(|member| member["instances"].as_array()).into_iter().flatten();
    Ok(all.filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Waits until a job has a checkpoint.
fn has_checkpoint(ckptd: &Ckptd, instance: &str) -> Result<(), Failure> {
    let job = instance.split('/').next().unwrap_or_default();
    until(&format!("{job} has a checkpoint"), LIMIT, || {
        let status = ckptd.ckptd(1, &["status", "--json", job])?;
        let status: Value = serde_json::from_str(&status.stdout).unwrap_or_default();
        let has = status["checkpoints"].as_array().is_some_and(|all| !all.is_empty());
        Ok(has.then_some(()))
    })
}

fn is_on(ckptd: &Ckptd, node: &str) -> Result<(), Failure> {
    until(&format!("a task runs on {node}"), LIMIT, || {
        Ok((!instances(ckptd, node)?.is_empty()).then_some(()))
    })
}

fn nodes(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 3, ..Setup::new(4) })?;
    let count = ckptd.cluster().share_script("count", COUNT)?;
    let task = format!("{count} {STEPS} t{{#}}");
    let numbers: Vec<String> = (1..=12).map(|number: u32| number.to_string()).collect();
    let options = ["ckptd", "farm", "run", "--cluster", "--checkpoint", "1", "--name", "sweep"];
    let words: Vec<&str> = options
        .into_iter()
        .chain(["--", &task, ":::"])
        .chain(numbers.iter().map(String::as_str))
        .collect();
    let mut run = ckptd.node(1).spawn(&words, &[])?;
    for node in ["node1", "node2", "node3"] {
        is_on(&ckptd, node)?;
    }
    // What has none begins anew, which is not what is looked for.
    for instance in instances(&ckptd, "node2")? {
        has_checkpoint(&ckptd, &instance)?;
    }
    ckptd.kill_node(2)?;
    ckptd.wait_until_gone(2, LIMIT)?;
    let token = ckptd.new_token(&[])?;
    let _newcomer = ckptd.join(4, &token, "node4")?;
    ckptd.wait_for_members(&[1, 3, 4])?;
    is_on(&ckptd, "node4")?;
    let left = ckptd.ckptd(0, &["leave", "node3"])?;
    check(left.status == 0, || format!("leave: {}", left.stderr))?;
    let status = run.wait(LIMIT * 3)?;
    check(status == 0, || format!("the farm ended with {status}: {}", run.errors()))?;
    are_right(&ckptd, "sweep", 12)?;
    are_gone(&ckptd)?;
    // Those of the lost machine went on from a checkpoint.
    let told = ckptd.coordinator_errors();
    let again =
        |line: &&str| line.contains("rolled back job=\"sweep.") && line.contains("declared gone");
    let (from, anew): (Vec<&str>, Vec<&str>) =
        told.lines().filter(again).partition(|line| line.contains("checkpoint="));
    check(!from.is_empty() && anew.is_empty(), || format!("{from:?}; {anew:?}"))
}

fn killed(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    let count = ckptd.cluster().share_script("count", COUNT)?;
    let text: String = (1..=6).map(|task| format!("{count} {STEPS} t{task}\n")).collect();
    let list = ckptd.cluster().share_script("tasks", &text)?;
    let options = ["ckptd", "farm", "run", "--cluster", "--checkpoint", "1", "--name", "sweep"];
    let mut run = ckptd.node(1).spawn(&[&options[..], &[&list]].concat(), &[])?;
    is_on(&ckptd, "node2")?;
    let before = instances(&ckptd, "node2")?;
    // The worker, and whoever looks after tasks here, are gone; the tasks are not.
    ckptd.node(1).must_run(&["pkill", "-KILL", "-f", "farm work"])?;
    check(run.wait(LIMIT)? == 125, || format!("the worker was not missed: {}", run.errors()))?;
    check(run.errors().contains("--resume sweep"), || run.errors())?;
    check(instances(&ckptd, "node2")? == before, || "tasks have gone with the worker".to_owned())?;
    let mut run = ckptd.node(1).spawn(&["ckptd", "farm", "run", "--resume", "sweep"], &[])?;
    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    ckptd.wait_for_members(&[1, 2])?;
    let status = run.wait(LIMIT * 3)?;
    check(status == 0, || format!("the farm ended with {status}: {}", run.errors()))?;
    are_right(&ckptd, "sweep", 6)?;
    are_gone(&ckptd)?;
    // None was begun twice.
    let told = ckptd.coordinator_errors();
    let created = told.lines().filter(|line| line.contains("created job=\"sweep.")).count();
    check(created <= 6, || told)?;

    // Who forgets a farm has no tasks of it run on.
    let options = ["ckptd", "farm", "run", "--cluster", "--name", "forgotten", "--"];
    let mut run =
        ckptd.node(1).spawn(&[&options[..], &["sleep {}", ":::", "1000"]].concat(), &[])?;
    until("the task runs", LIMIT, || {
        let jobs = ckptd.node(1).must_run(&["ckptd", "ls"])?;
        Ok(jobs.contains("running").then_some(()))
    })?;
    ckptd.node(1).must_run(&["pkill", "-KILL", "-f", "farm work"])?;
    run.wait(LIMIT)?;
    ckptd.node(1).must_run(&["ckptd", "farm", "rm", "forgotten"])?;
    are_gone(&ckptd)
}

fn ends(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    let on = ckptd.node(1);
    let text = "exit 3\nkill -9 $$\nsleep 1000\nnosuchprogram\nsleep 1; test -e again || { touch again; exit 1; }\n";
    let list = ckptd.cluster().share_script("tasks", text)?;
    let options = ["farm", "run", "--cluster", "--timeout", "5", "--name", "ends"];
    let run = ckptd.ckptd(1, &[&options[..], &[&list]].concat())?;
    check(run.status == 5, || format!("{}: {}", run.status, run.stderr))?;
    let how = |task: u64| -> Result<String, Failure> {
        let all = ended(&ckptd, "ends")?;
        let one = all.get(&task).cloned().unwrap_or_default();
        Ok(format!("{} {}", one["outcome"].as_str().unwrap_or_default(), one["status"]))
    };
    for (task, wanted) in
        [(1, "exited 3"), (2, "signalled 137"), (3, "timed-out 124"), (4, "exited 127")]
    {
        let how = how(task)?;
        check(how == wanted, || format!("task {task}: {how}"))?;
    }
    are_gone(&ckptd)?;

    // One by one; what runs when the farm ends goes on from a last checkpoint.
    let count = ckptd.cluster().share_script("count", COUNT)?;
    on.must_run(&["ckptd", "farm", "start", "--cluster", "many"])?;
    for words in [vec![&*count, "48", "t1"], vec!["sleep", "1000"], vec!["/no/such"]] {
        on.must_run(&[&["ckptd", "farm", "submit", "--farm", "many", "--"][..], &words].concat())?;
    }
    until("task 1 has written something", LIMIT, || {
        let text = std::fs::read_to_string(results(&ckptd, "many").join("1.out"));
        Ok(text.is_ok_and(|text| text.lines().count() > 3).then_some(()))
    })?;
    on.must_run(&["ckptd", "farm", "cancel", "--farm", "many", "2"])?;
    let waited = ckptd.ckptd(1, &["farm", "wait", "--farm", "many", "2", "3"])?;
    check(waited.status == 2, || format!("{}: {}", waited.status, waited.stderr))?;
    on.must_run(&["ckptd", "farm", "stop", "many"])?;
    let jobs = on.must_run(&["ckptd", "ls"])?;
    check(jobs.contains("interrupted") && jobs.lines().count() == 2, || jobs)?;
    on.must_run(&["ckptd", "farm", "start", "many"])?;
    let waited = ckptd.ckptd(1, &["farm", "wait", "--farm", "many", "1"])?;
    check(waited.status == 0, || format!("{}: {}", waited.status, waited.stderr))?;
    let text = std::fs::read_to_string(results(&ckptd, "many").join("1.out")).unwrap_or_default();
    let whole: String = (1..=STEPS).map(|step| format!("t1 {step}\n")).collect();
    check(text == whole, || text)?;
    on.must_run(&["ckptd", "farm", "stop", "many"])?;
    are_gone(&ckptd)?;

    // What is on this machine alone stays there.
    let here = ckptd
        .ckptd(1, &["farm", "run", "--name", "here", "--", "uname -n; exit {}", ":::", "0"])?;
    check(here.status == 0, || here.stderr)?;
    let refused = ckptd.node(0).run(
        &[
            "env",
            &format!("CKPTD_DIR={WORK}/none"),
            "ckptd",
            "farm",
            "run",
            "--cluster",
            "--name",
            "x",
            "--",
            "true {}",
            ":::",
            "1",
        ],
        &[],
    )?;
    check(refused.status == 125 && refused.stderr.contains("belongs to none"), || refused.stderr)
}

fn stubborn(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(1)?;
    let script = ckptd
        .cluster()
        .share_script("stubborn", "#!/bin/sh\ntrap '' TERM\necho here\nsleep 1000\nsleep 1000\n")?;
    let mut job = ckptd.run(1, "stubborn", &["--interval", "0"], &[&script])?;
    job.wait_for_output("here", LIMIT)?;
    let stopped = ckptd.ckptd(1, &["stop", "stubborn"])?;
    check(stopped.status == 0, || format!("{}: {}", stopped.status, stopped.stderr))?;
    let status = job.wait(LIMIT)?;
    check(status == 137, || format!("it ended with {status}"))?;
    let run = ckptd.ckptd(
        1,
        &["farm", "run", "--cluster", "--timeout", "1", "--name", "x", "--", &script, ":::", "1"],
    )?;
    check(run.status == 1 && run.stderr.contains("took too long"), || {
        format!("{}: {}", run.status, run.stderr)
    })?;
    ckptd.node(1).must_run(&["ckptd", "rm", "stubborn"])?;
    are_gone(&ckptd)
}
