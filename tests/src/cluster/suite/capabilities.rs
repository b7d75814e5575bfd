//! An agent that has some of root's capabilities instead of root.

use super::images::{OTHER, as_user};
use super::open_mpi::{ANSWER, END, end};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::{Background, Output, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "agent-with-capabilities",
        about: "an ordinary user's agent with four capabilities runs other users' jobs as these, checkpoints them, brings them \
            back, and takes them over from the agent before; root's and nobody's it refuses",
        run: with_capabilities,
    },
    Case {
        name: "capabilities-openmpi",
        about: "an Open MPI job of a user over a root's agent and such an agent loses root's node and ends right",
        run: open_mpi,
    },
];

/// Whose the agent is: bin.
const AGENT: &str = "2";
const CAPABILITIES: &str = "+checkpoint_restore,+sys_ptrace,+setuid,+setgid";
const FOLDER: &str = "CKPTD_DIR=/tmp/agent";
/// Says who it is and what it may, before a restart and after it. Its file rolls back with it.
const SCRIPT: &str = "id -u; id -g; grep Cap[IPEA] /proc/self/status; echo mine > $TMPDIR/file; echo started; \
                      until [ -e /mnt/shared/end ]; do sleep 0.2; done; \
                      id -u; grep Cap[IPEA] /proc/self/status; cat $TMPDIR/file; stat -c %u $TMPDIR/file; echo all done";

/// As a unit with User= and AmbientCapabilities= starts it.
fn start(ckptd: &Ckptd, token: &str) -> Result<Background, Failure> {
    let user = ["setpriv", "--reuid", AGENT, "--regid", AGENT, "--clear-groups"];
    let rights = ["--inh-caps", CAPABILITIES, "--ambient-caps", CAPABILITIES];
    let agent = ["env", "HOME=/tmp", FOLDER, "ckptd", "agent", "--join", token, "--name", "node2"];
    let options = ["--slots", "2", "--speed", "1"];
    let words = [&user[..], &rights, &agent, &options].concat();
    let running = ckptd.node(2).spawn(&words, &[])?;
    ckptd.wait_for_members(&[2]).map_err(|failure| running.explain(&failure))?;
    Ok(running)
}

/// A token, and the agent's folder on the second node.
fn prepare(ckptd: &Ckptd) -> Result<String, Failure> {
    ckptd.node(2).must_run(&[
        "install",
        "-d",
        "-o",
        AGENT,
        "-g",
        AGENT,
        "-m",
        "711",
        "/tmp/agent",
    ])?;
    ckptd.new_token(&["--role", "login"])
}

fn of(uid: &str) -> Vec<&str> {
    [&as_user(uid)[..], &["env", FOLDER, "ckptd"]].concat()
}

fn say(ckptd: &Ckptd, uid: &str, words: &[&str]) -> Result<Output, Failure> {
    ckptd.node(2).run(&[&of(uid)[..], words].concat(), &[])
}

fn with_capabilities(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 1, ..Setup::new(2) })?;
    let token = prepare(&ckptd)?;
    let mut agent = start(&ckptd, &token)?;
    ckptd.kill_agent(1)?;
    ckptd.wait_until_gone(1, LIMIT)?;
    let run = ["run", "--name", "other", "--interval", "0", "--", "sh", "-c", SCRIPT];
    let mut job = ckptd.node(2).spawn(&[&of(OTHER)[..], &run].concat(), &[])?;
    job.wait_for_output("started", LIMIT).map_err(|failure| agent.explain(&failure))?;
    let must = |words: &[&str]| -> Result<(), Failure> {
        let said = say(&ckptd, OTHER, words)?;
        check(said.status == 0, || format!("{words:?}: {said:?}"))
    };
    must(&["checkpoint", "other"]).map_err(|failure| agent.explain(&failure))?;
    must(&["verify", "other", "--rehearse"]).map_err(|failure| agent.explain(&failure))?;

    listed(&ckptd)?;
    agent.kill();
    agent = start(&ckptd, &token)?;
    until("the agent has taken the job over", LIMIT, || {
        Ok((say(&ckptd, OTHER, &["checkpoint", "other"])?.status == 0).then_some(()))
    })
    .map_err(|failure| agent.explain(&failure))?;
    must(&["stop", "other"])?;
    job.wait(LIMIT)?;

    let restart = ["restart", "other"];
    let mut again = ckptd.node(2).spawn(&[&of(OTHER)[..], &restart].concat(), &[])?;
    end(&ckptd)?;
    let status = again.wait(JOB_LIMIT)?;
    check(status == 0, || agent.explain(&Failure(again.errors())).0)?;
    let log = say(&ckptd, OTHER, &["logs", "other"])?.stdout;
    let none = ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|set| format!("{set}:\t{:016x}", 0));
    let none: Vec<&str> = none.iter().map(String::as_str).collect();
    let wanted =
        [&[OTHER, OTHER][..], &none, &["started", OTHER], &none, &["mine", OTHER, "all done"]]
            .concat();
    let lines: Vec<&str> =
        log.lines().filter(|line| !line.is_empty() && !line.starts_with('[')).collect();
    check(lines == wanted, || format!("{lines:?}"))?;
    not_the_agents(&ckptd)?;
    refusals(&ckptd)
}

/// The agent's folder is not the user's to list, and the cluster tells of the jobs all the same.
fn listed(ckptd: &Ckptd) -> Result<(), Failure> {
    let said = say(ckptd, OTHER, &["ls"])?;
    let warned = said.stderr.lines().count() == 1 && said.stderr.contains("are not listed");
    check(said.status == 0 && warned && said.stdout.contains("other"), || format!("{said:?}"))
}

/// What was closed to a job's user meanwhile is not opened with the agent's rights for the job that comes back.
fn not_the_agents(ckptd: &Ckptd) -> Result<(), Failure> {
    let lend = "echo lent > /tmp/lent; chown 3:3 /tmp/lent; chmod 644 /tmp/lent";
    ckptd.node(2).must_run(&["sh", "-c", lend])?;
    let script = "exec 3< /tmp/lent; echo started; sleep 1000";
    let run = ["run", "--name", "lent", "--interval", "0", "--", "sh", "-c", script];
    let mut job = ckptd.node(2).spawn(&[&of(OTHER)[..], &run].concat(), &[])?;
    job.wait_for_output("started", LIMIT)?;
    for words in [["checkpoint", "lent"], ["stop", "lent"]] {
        let said = say(ckptd, OTHER, &words)?;
        check(said.status == 0, || format!("{words:?}: {said:?}"))?;
    }
    job.wait(LIMIT)?;
    ckptd.node(2).must_run(&["chmod", "600", "/tmp/lent"])?;
    let denied = say(ckptd, OTHER, &["restart", "lent"])?;
    let told = denied.stderr.contains("/tmp/lent") && denied.stderr.contains("ermission denied");
    check(denied.status == 125 && told, || format!("{denied:?}"))
}

/// A user's MPI job on both kinds of agents.
fn open_mpi(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 1, ..Setup::new(2) })?;
    let token = prepare(&ckptd)?;
    let agent = start(&ckptd, &token)?;
    let run = ["ckptd", "run", "--name", "queens", "--interval", "0", "--"];
    let mpi = ["mpirun.openmpi", "-np", "4", "--mca", "mpi_yield_when_idle", "1", "nqueens"];
    let words = ["13", "--ballast", "16", "--chat", "40", "--until", END];
    let words = [&as_user(OTHER)[..], &run, &mpi, &words].concat();
    let mut job = ckptd.node(1).spawn(&words, &[])?;
    job.wait_for_output("rank 3 of 4 on node2", LIMIT)
        .map_err(|failure| agent.explain(&failure))?;
    let taken = say(&ckptd, OTHER, &["checkpoint", "queens"])?;
    check(taken.status == 0, || agent.explain(&Failure(format!("{taken:?}"))).0)?;
    ckptd.kill_node(1)?;
    let mut attached =
        ckptd.node(2).spawn(&[&of(OTHER)[..], &["attach", "queens"]].concat(), &[])?;
    end(&ckptd)?;
    let status = attached.wait(JOB_LIMIT)?;
    let log = say(&ckptd, OTHER, &["logs", "queens"])?.stdout;
    check(status == 0 && log.contains(ANSWER), || {
        agent.explain(&Failure(format!("status {status}: {}\n{log}", attached.errors()))).0
    })
}

/// Root and nobody have no number where the agent is.
fn refusals(ckptd: &Ckptd) -> Result<(), Failure> {
    for uid in ["0", "65534"] {
        let denied = say(ckptd, uid, &["run", "--", "true"])?;
        let told = denied.stderr.contains("can't tell them apart");
        check(denied.status == 125 && told, || format!("user {uid}: {denied:?}"))?;
    }
    let elsewhere = ckptd.ckptd(0, &["run", "--", "true"])?;
    let told = elsewhere.stderr.contains("node2 has no user \"root\"");
    check(elsewhere.status == 125 && told, || format!("{elsewhere:?}"))
}
