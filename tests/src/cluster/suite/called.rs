//! Commands that are called when something happens to a job (`--on`).

use serde_json::Value;

use super::open_mpi::{finish, start};
use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "called",
    about: "a node is lost: commands hear of that, of where its ranks are then, and of the end; also of a job that nobody \
            waits for",
    run: called,
}];

/// The lines of JSON that commands have written down on a node.
fn told(ckptd: &Ckptd, number: usize, path: &str) -> Result<Vec<Value>, Failure> {
    let text = ckptd.node(number).run(&["cat", path], &[])?.stdout;
    let lines = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    lines.map_err(|error| Failure(format!("{error}: {text:?}")))
}

fn called(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let hooks = ["lost=cat >>/tmp/seen", "moved=cat >>/tmp/seen", "ended=cat >>/tmp/seen"];
    let options = hooks.map(|hook| ["--on", hook]).concat();
    let mut job = start(&ckptd, &options, "nqueens")?;
    let before = job.status()?;
    let on_node3 = before.places().into_iter().filter(|place| place.node == "node3");
    let mut ranks: Vec<i64> =
        on_node3.filter(|place| place.process == "nqueens").map(|place| place.pid).collect();
    ranks.sort_unstable();
    check(ranks.len() == 2, || format!("two ranks on node3: {}", before.text()))?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    let seen = until("the commands have heard", LIMIT, || {
        Ok(Some(told(&ckptd, 1, "/tmp/seen")?).filter(|seen| seen.len() >= 2))
    });
    let seen = seen.map_err(|failure| job.explain(&failure))?;
    // Commands of different events are called side by side.
    let of = |event: &str| {
        let one = seen.iter().find(|one| one["event"] == event);
        one.ok_or_else(|| Failure(format!("no word of '{event}': {seen:?}")))
    };
    let (lost, moved) = (of("lost")?, of("moved")?);
    check(lost["node"] == "node3" && lost["job"] == "queens", || format!("{lost}"))?;
    let of_ranks = |list: &Value| {
        let all = list.as_array().cloned().unwrap_or_default();
        let of = all.into_iter().filter(|one| one["name"] == "nqueens");
        let mut pids: Vec<i64> = of.filter_map(|one| one["pid"].as_i64()).collect();
        pids.sort_unstable();
        pids
    };
    check(of_ranks(&lost["processes"]) == ranks, || format!("not {ranks:?}: {lost}"))?;
    let is_of_loss = moved["reason"] == "lost" && moved["node"] == "node3";
    check(is_of_loss && of_ranks(&moved["moves"]) == ranks, || format!("not {ranks:?}: {moved}"))?;
    let now = job.status()?.places();
    for one in moved["moves"].as_array().into_iter().flatten() {
        let is_there = now.iter().any(|place| {
            one["to"] == place.node && one["pid"] == place.pid && one["name"] == place.process
        });
        check(is_there && one["from"] == "node3", || format!("{one} is not so: {now:?}"))?;
    }
    finish(&ckptd, &mut job)?;
    let seen = told(&ckptd, 1, "/tmp/seen")?;
    let ends = seen.last().filter(|_| seen.len() == 3);
    check(ends.is_some_and(|end| end["event"] == "ended" && end["status"] == 0), || {
        format!("the end was waited for: {seen:?}")
    })?;
    detached(&ckptd)
}

/// Nobody waits for the job; what a command says, and that it fails, is in the log.
fn detached(ckptd: &Ckptd) -> Result<(), Failure> {
    let hooks = ["ended=cat >/tmp/end; echo told; exit 3", "checkpoint=cat >>/tmp/commits"];
    let options = hooks.map(|hook| ["--on", hook]).concat();
    let run = [&["run", "--detach", "--name", "apart", "--interval", "0"], &options[..]].concat();
    let begun = ckptd.ckptd(2, &[&run[..], &["--", "sleep", "1000"]].concat())?;
    check(begun.status == 0 && begun.stdout == "apart\n", || format!("{begun:?}"))?;
    let commit = ckptd.ckptd(1, &["checkpoint", "apart"])?;
    check(commit.status == 0, || format!("{commit:?}"))?;
    until("the commit is told of", LIMIT, || {
        let seen = told(ckptd, 2, "/tmp/commits")?;
        Ok(seen.iter().any(|one| one["checkpoint"] == 1).then_some(()))
    })?;
    let stopped = ckptd.ckptd(1, &["stop", "apart"])?;
    check(stopped.status == 0, || format!("{stopped:?}"))?;
    let lines = [
        "[ckptd: on ended: told]\n",
        "[ckptd: warning: on ended: 'cat >/tmp/end; echo told; exit 3' ended with status 3]\n",
    ];
    let mut log = String::new();
    let written = until("the log tells of it", LIMIT, || {
        log = ckptd.ckptd(2, &["logs", "apart"])?.stdout;
        Ok(lines.iter().all(|line| log.contains(line)).then_some(()))
    });
    written.map_err(|failure| Failure(format!("{failure}: {log:?}")))?;
    let end = told(ckptd, 2, "/tmp/end")?;
    check(end.first().is_some_and(|end| end["signal"] == 15), || format!("{end:?}"))?;
    // A restart is told of nothing that was before.
    let again = ["restart", "apart", "--detach", "--on", "ended=cat >/tmp/again"];
    let again = ckptd.ckptd(2, &[&again[..], &["--on", "checkpoint=cat >/tmp/again"]].concat())?;
    check(again.status == 0, || format!("{again:?}"))?;
    let stopped = ckptd.ckptd(1, &["stop", "apart"])?;
    check(stopped.status == 0, || format!("{stopped:?}"))?;
    until("whoever calls them ends", LIMIT, || {
        let left = ckptd.node(2).run(&["pgrep", "-f", "call-commands"], &[])?;
        Ok(left.stdout.is_empty().then_some(()))
    })?;
    let seen = told(ckptd, 2, "/tmp/again")?;
    check(seen.len() == 1 && seen[0]["event"] == "ended", || format!("{seen:?}"))
}
