//! Jobs of a cluster that are taken elsewhere by an archive.

use std::fs;

use super::images::{OTHER, OWNER, as_user, packs, say, wound};
use super::open_mpi::{ANSWER, END, end};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::status::Status;
use crate::cluster::{Background, Output, SHARED, failure, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "export-import",
        about: "a user takes an Open MPI job of three nodes out of the cluster and in again, past a damaged copy; it ends right",
        run: there_and_back,
    },
    Case {
        name: "import-elsewhere",
        about: "a job goes to another cluster: its user may not bring it, root may for the user; it ends right",
        run: elsewhere,
    },
    Case {
        name: "import-alone",
        about: "a cluster's job of one part becomes, encrypted on the way, a job of one machine without the cluster; one of two parts does not",
        run: alone,
    },
    Case {
        name: "import-promotes",
        about: "an operator makes a user's job of one machine the cluster's; that machine is lost, and two others share the ranks; it ends right",
        run: promoted,
    },
];

const FILE: &str = "/tmp/queens.tar.zst";

/// Runs six ranks as the user on the cluster's machines, and takes a checkpoint of them.
fn start(ckptd: &Ckptd, ranks: &str, last: &str) -> Result<Background, Failure> {
    let run = ["ckptd", "run", "--name", "queens", "--interval", "0", "--"];
    let mpi = ["mpirun.openmpi", "-np", ranks, "--mca", "mpi_yield_when_idle", "1", "nqueens"];
    let words = ["13", "--ballast", "16", "--chat", "40", "--until", END];
    let words = [&as_user(OWNER)[..], &run, &mpi, &words].concat();
    let mut job = ckptd.node(1).spawn(&words, &[])?;
    job.wait_for_output(last, LIMIT)?;
    must(say(ckptd, 1, OWNER, &["checkpoint", "queens"])?)?;
    Ok(job)
}

fn must(said: Output) -> Result<Output, Failure> {
    check(said.status == 0, || format!("{said:?}"))?;
    Ok(said)
}

fn refused(said: &Output, words: &str) -> Result<(), Failure> {
    let one_line = said.stderr.trim_end().lines().count() == 1;
    let told = said.status == 125 && one_line && said.stderr.contains(words);
    check(told && said.stdout.is_empty(), || format!("not refused by {words:?}: {said:?}"))
}

/// What exports and imports have left on a node: in folders of the user, and in its agent's.
fn left_on(ckptd: &Ckptd, number: usize) -> Result<String, Failure> {
    let names = ["-name", ".ckptd-export-*", "-o", "-name", ".import-*"];
    let paths = ["-o", "-path", "*/.incoming/*", "-o", "-path", "*/.arriving/*"];
    let find = [&["find", "/tmp", "/mnt/home", "-xdev", "("], &names[..], &paths, &[")"]].concat();
    ckptd.node(number).must_run(&find)
}

fn restart(ckptd: &Ckptd, name: &str, options: &[&str]) -> Result<(), Failure> {
    let words = [&as_user(OWNER)[..], &["ckptd", "restart", name], options].concat();
    let mut again = ckptd.node(1).spawn(&words, &[])?;
    end(ckptd)?;
    let status = again.wait(JOB_LIMIT)?;
    let output = again.output();
    check(status == 0 && output.contains(ANSWER), || {
        format!("status {status}: {output}\n{}", again.errors())
    })
}

fn there_and_back(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, "6", "rank 5 of 6 on node3")?;
    // No node holds all three images.
    must(say(&ckptd, 2, OWNER, &["export", "queens", FILE])?)?;
    refused(&say(&ckptd, 2, OWNER, &["export", "queens", FILE])?, "is there already")?;
    let denied = say(&ckptd, 2, OTHER, &["export", "queens", "/tmp/stolen.tar.zst"])?;
    refused(&denied, "there is none of that name")?;
    refused(
        &say(&ckptd, 2, OWNER, &["export", "queens@9", "/tmp/x"])?,
        "no committed checkpoint 9",
    )?;
    for pack in packs(&ckptd, 2) {
        wound(&pack)?;
    }
    let second = must(say(&ckptd, 2, OWNER, &["export", "queens@1", "/tmp/second.tar.zst"])?)?;
    check(second.stderr.contains("checkpoint 1 of queens: "), || format!("{second:?}"))?;
    must(say(&ckptd, 1, OWNER, &["stop", "queens"])?)?;
    job.wait(LIMIT)?;
    must(say(&ckptd, 1, OWNER, &["rm", "queens"])?)?;

    hostile(&ckptd)?;
    let imported = must(say(&ckptd, 2, OWNER, &["import", "/tmp/second.tar.zst"])?)?;
    check(imported.stdout == "queens\n", || format!("{imported:?}"))?;
    refused(&say(&ckptd, 2, OWNER, &["import", FILE])?, "choose one with --name")?;
    let again = must(say(&ckptd, 2, OWNER, &["import", FILE, "--name", "again"])?)?;
    check(again.stdout == "again\n", || format!("{again:?}"))?;
    let seen = say(&ckptd, 2, OTHER, &["status", "again"])?;
    refused(&seen, "there is none of that name")?;
    let log = must(say(&ckptd, 3, OWNER, &["logs", "again"])?)?;
    check(log.stdout.contains("rank 5 of 6 on node3"), || format!("{log:?}"))?;
    let timed = must(say(&ckptd, 3, OWNER, &["logs", "--time", "again"])?)?;
    let line = timed.stdout.lines().find(|line| line.contains("rank 5 of 6 on node3"));
    check(line.is_some_and(|line| line.contains("Z  out    ")), || format!("{timed:?}"))?;
    check(left_on(&ckptd, 2)?.is_empty(), || "something is left".into())?;
    // What was imported is in the coordinator's log.
    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    restart(&ckptd, "again", &[])
}

/// What is no whole archive is refused in one line, and leaves nothing.
fn hostile(ckptd: &Ckptd) -> Result<(), Failure> {
    let cases = [
        (format!("head -c -100 {FILE}"), "cut short"),
        (format!("head -c 100000 {FILE}"), "cut short"),
        (format!("cat {FILE}; echo more"), "follows its end"),
        (
            format!(r#"zstd -dc {FILE} | sed 's/"seal": "....../"seal": "000000/' | zstd -q"#),
            "only an operator may",
        ),
    ];
    for (make, words) in cases {
        ckptd.node(2).must_run(&["sh", "-c", &format!("({make}) > /tmp/bad")])?;
        refused(&say(ckptd, 2, OWNER, &["import", "/tmp/bad", "--name", "bad"])?, words)?;
    }
    let jobs = must(ckptd.ckptd(0, &["ls", "--json"])?)?;
    check(jobs.stdout.trim() == "[]", || format!("jobs are left: {jobs:?}"))?;
    check(left_on(ckptd, 2)?.is_empty(), || "something is left".into())
}

fn elsewhere(stage: &Stage) -> Result<(), Failure> {
    let archive = {
        let ckptd = stage.cluster(2)?;
        let _job = start(&ckptd, "4", "rank 3 of 4 on node2")?;
        must(say(&ckptd, 1, OWNER, &["export", "queens", FILE])?)?;
        let shared = format!("{SHARED}/queens.tar.zst");
        ckptd.node(1).must_run(&["cp", FILE, &shared])?;
        let path = ckptd.cluster().folder().join("shared").join("queens.tar.zst");
        fs::read(path).map_err(failure("read the archive"))?
    };
    let ckptd = stage.cluster_of(Setup { faults: true, agents: 1, ..Setup::new(2) })?;
    let token = ckptd.new_token(&["--role", "operator"])?;
    let mut agent = ckptd.join(2, &token, "node2")?;
    ckptd.wait_for_members(&[1, 2])?;
    let path = ckptd.cluster().folder().join("shared").join("moved.tar.zst");
    fs::write(path, archive).map_err(failure("write the archive"))?;
    let shared = format!("{SHARED}/moved.tar.zst");
    ckptd.node(2).must_run(&["sh", "-c", &format!("cp {shared} {FILE}; chmod 644 {FILE}")])?;
    refused(&say(&ckptd, 2, OWNER, &["import", FILE])?, "so only an operator may import it")?;
    let other = ["import", FILE, "--user", "nobody"];
    refused(&say(&ckptd, 2, OWNER, &other)?, "only an operator may import")?;
    agent_lost(&ckptd, &mut agent, &other)?;
    must(ckptd.ckptd(2, &other)?)?;
    let denied = say(&ckptd, 1, OTHER, &["restart", "queens"])?;
    check(denied.status == 125, || format!("{denied:?}"))?;
    // The cluster's programs have been made anew.
    restart(&ckptd, "queens", &["--force"])
}

/// The agent is killed when it has all images and nobody knows of the job yet: nothing of it is left.
fn agent_lost(ckptd: &Ckptd, agent: &mut Background, import: &[&str]) -> Result<(), Failure> {
    let armed = ckptd.faults(2).join("adopted");
    fs::create_dir_all(ckptd.faults(2)).map_err(failure("make a folder for faults"))?;
    fs::write(&armed, "").map_err(failure("arm a fault"))?;
    let mut importing = ckptd.node(2).spawn(&[&["ckptd"], import].concat(), &[])?;
    let reached = armed.with_extension("reached");
    until("the agent has the images", LIMIT, || Ok(reached.exists().then_some(())))
        .map_err(|failure| importing.explain(&failure))?;
    check(left_on(ckptd, 2)?.contains("/.incoming/"), || "nothing is on its way".into())?;
    agent.kill();
    let status = importing.wait(LIMIT)?;
    check(status == 125, || format!("status {status}: {}", importing.errors()))?;
    ckptd.start_agent(2)?;
    ckptd.wait_for_members(&[1, 2])?;
    check(left_on(ckptd, 2)?.is_empty(), || "something is left".into())?;
    let jobs = must(ckptd.ckptd(0, &["ls", "--json"])?)?;
    check(jobs.stdout.trim() == "[]", || format!("jobs are left: {jobs:?}"))
}

/// A key pair of age for tests.
const SECRET: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const PUBLIC: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const KEY: &str = "/tmp/key";

/// A folder of jobs without a cluster.
const OWN: &str = "/tmp/own";

fn alone(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    let wait = "until [ -e /mnt/shared/end ]; do sleep 0.2; done";
    let one = format!("echo started; {wait}; echo all done");
    let two = format!("ckptd rsh node2 'echo started; {wait}'; echo all done");
    for (name, script) in [("one", &one), ("two", &two)] {
        let run = ["ckptd", "run", "--name", name, "--interval", "0", "--", "sh", "-c", script];
        let mut job = ckptd.node(1).spawn(&[&as_user(OWNER)[..], &run].concat(), &[])?;
        job.wait_for_output("started", LIMIT)?;
        must(say(&ckptd, 1, OWNER, &["checkpoint", name])?)?;
        must(say(&ckptd, 1, OWNER, &["export", "-r", PUBLIC, name, &format!("/tmp/{name}")])?)?;
        must(say(&ckptd, 1, OWNER, &["stop", name])?)?;
        job.wait(LIMIT)?;
    }
    refused(&say(&ckptd, 1, OWNER, &["import", "/tmp/one"])?, "--identity FILE")?;
    ckptd.node(1).must_run(&["sh", "-c", &format!("echo {SECRET} > {KEY}")])?;
    let import = |file| say(&ckptd, 1, OWNER, &["import", file, "-i", KEY, "--dir", OWN]);
    refused(&import("/tmp/two")?, "in 2 parts")?;
    let imported = must(import("/tmp/one")?)?;
    check(imported.stdout == "one\n", || format!("{imported:?}"))?;
    end(&ckptd)?;
    // Agents give jobs the groups of their users.
    let login = ["setpriv", "--reuid", OWNER, "--regid", OWNER, "--groups", OWNER];
    let restart = ["env", "-C", "/", "HOME=/tmp", "ckptd", "restart", "one", "--dir", OWN];
    let again = must(ckptd.node(1).run(&[&login[..], &restart].concat(), &[])?)?;
    check(again.stdout.contains("all done"), || format!("{again:?}"))?;
    let log = must(say(&ckptd, 1, OWNER, &["logs", "one", "--dir", OWN])?)?;
    let lines: Vec<&str> = log.stdout.lines().filter(|line| !line.starts_with('[')).collect();
    check(lines == ["started", "all done"], || format!("{log:?}"))?;
    let timed = must(say(&ckptd, 1, OWNER, &["logs", "--time", "one", "--dir", OWN])?)?;
    let known = timed.stdout.lines().filter(|line| line.contains("Z  "));
    check(known.count() == timed.stdout.lines().count(), || format!("{timed:?}"))
}

/// The user's, as agents start jobs of theirs.
fn logged_in<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let login = ["setpriv", "--reuid", OWNER, "--regid", OWNER, "--groups", OWNER];
    [&login[..], &["env", "-C", "/", "HOME=/tmp"], words].concat()
}

/// Waits until the job runs, with its three ranks on those machines.
fn on(ckptd: &Ckptd, machines: &[&str]) -> Result<(), Failure> {
    until("the ranks are where they should be", LIMIT, || {
        let status = Status::of(ckptd, "queens")?;
        let ranks = status.spread_of("nqueens");
        let there = ranks.keys().map(String::as_str).eq(machines.iter().copied());
        Ok((status.state() == "running" && there && ranks.values().sum::<usize>() == 3)
            .then_some(()))
    })
}

fn promoted(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 2, ..Setup::new(3) })?;
    let token = ckptd.new_token(&["--role", "operator"])?;
    let _agent = ckptd.join(3, &token, "node3")?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    let run = ["ckptd", "run", "--dir", OWN, "--name", "queens", "--interval", "0", "--"];
    let mpi =
        ["mpirun.openmpi", "-np", "3", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"];
    let queens = ["nqueens", "13", "--ballast", "16", "--chat", "40", "--until", END];
    let words = [&run[..], &mpi, &queens].concat();
    let mut job = ckptd.node(2).spawn(&logged_in(&words), &[])?;
    job.wait_for_output("rank 2 of 3 on node2", LIMIT)?;
    let own = |words: &[&str]| {
        let words = [&["ckptd"], words, &["--dir", OWN]].concat();
        ckptd.node(2).run(&logged_in(&words), &[])
    };
    must(own(&["checkpoint", "queens"])?)?;
    must(own(&["export", "queens", FILE])?)?;
    let shared = format!("{SHARED}/queens.tar.zst");
    ckptd.node(2).must_run(&["cp", FILE, &shared])?;
    ckptd.node(3).must_run(&["cp", &shared, FILE])?;
    must(own(&["stop", "queens"])?)?;
    job.wait(LIMIT)?;

    let import = ["import", FILE, "--user", "nobody"];
    refused(&say(&ckptd, 2, OWNER, &import)?, "so only an operator may import it")?;
    let elsewhere = ["import", FILE, "--user", "nobody", "--dir", OWN];
    refused(&ckptd.ckptd(2, &elsewhere)?, "this machine belongs to no cluster")?;
    check(left_on(&ckptd, 2)?.is_empty(), || "something is left".into())?;
    let imported = must(ckptd.ckptd(3, &import)?)?;
    check(imported.stdout == "queens\n", || format!("{imported:?}"))?;
    let denied = say(&ckptd, 1, OTHER, &["restart", "queens"])?;
    refused(&denied, "there is none of that name")?;
    let log = must(say(&ckptd, 3, OWNER, &["logs", "queens"])?)?;
    check(log.stdout.contains("rank 2 of 3 on node2"), || format!("{log:?}"))?;

    let words = [&as_user(OWNER)[..], &["ckptd", "restart", "queens"]].concat();
    let mut again = ckptd.node(1).spawn(&words, &[])?;
    on(&ckptd, &["node2"]).map_err(|failure| again.explain(&failure))?;
    must(say(&ckptd, 1, OWNER, &["checkpoint", "queens"])?)?;
    ckptd.kill_node(2)?;
    ckptd.wait_until_gone(2, LIMIT)?;
    on(&ckptd, &["node1", "node3"]).map_err(|failure| again.explain(&failure))?;
    end(&ckptd)?;
    let status = again.wait(JOB_LIMIT)?;
    let output = again.output();
    check(status == 0 && output.contains(ANSWER), || {
        format!("status {status}: {output}\n{}", again.errors())
    })
}
