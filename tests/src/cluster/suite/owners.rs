//! The guide "Machines of several owners", line by line.

use std::time::Duration;

use super::stage::{LIMIT, Stage};
use super::{Case, check};
use crate::cluster::node::Output;
use crate::cluster::{Background, Cluster, SHARED, Spec, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "owners",
    about: "the guide to machines of several owners, each line of it as it stands there: two users, a phone, a user's \
            own agent, and a standby that takes over",
    run: owners,
}];

const GUIDE: &str = include_str!("../../../../docs/src/guides/owners.md");
/// The guide's machines, by the numbers of nodes, and who has an account there. Numbers of one user differ.
const MACHINES: [(&str, &str); 5] = [
    ("head", ""),
    ("node1", "alice:2001 bob:2002 app:2003"),
    ("spare", "bob:2001 alice:2002 app:2003"),
    ("desk", "bob:2007"),
    ("phone", "app:2003 alice:2009 bob:2010"),
];

/// A line of the guide.
struct Step<'a> {
    machine: &'a str,
    /// None: root.
    user: Option<&'a str>,
    command: &'a str,
}

impl<'a> Step<'a> {
    /// A line of an indented block: `machine#  command` or `machine user$ command`.
    fn of(line: &'a str) -> Option<Self> {
        let line = line.strip_prefix("    ")?;
        if let Some((machine, command)) = line.split_once('#') {
            if !machine.contains(' ') {
                return Some(Self { machine, user: None, command: command.trim() });
            }
        }
        let (who, command) = line.split_once('$')?;
        let (machine, user) = who.split_once(' ')?;
        Some(Self { machine, user: Some(user), command: command.trim() })
    }

    fn serves(&self) -> bool {
        self.command.starts_with("ckptd coordinator") || self.command.starts_with("ckptd agent")
    }
}

/// The machines, and what runs on them.
struct Institute {
    // Before their machines.
    coordinator: Option<Background>,
    others: Vec<Background>,
    /// Where commands about the cluster are given.
    head: usize,
    cluster: Cluster,
}

fn number(machine: &str) -> Result<usize, Failure> {
    MACHINES
        .iter()
        .position(|(name, _)| *name == machine)
        .ok_or_else(|| Failure(format!("the guide knows no machine {machine}")))
}

fn accounts(machine: usize) -> impl Iterator<Item = (&'static str, &'static str)> {
    MACHINES[machine].1.split_whitespace().filter_map(|account| account.split_once(':'))
}

impl Institute {
    fn start(stage: &Stage) -> Result<Self, Failure> {
        let cluster = Cluster::start(&Spec::new(MACHINES.len() - 1))?;
        cluster.share(&stage.ckptd)?;
        for (machine, (name, _)) in MACHINES.iter().enumerate() {
            let mut script = format!(
                "hostname {name} && mount -t tmpfs none /var/lib && mount -t tmpfs none /run && cp /etc/passwd /tmp/passwd"
            );
            for (user, uid) in accounts(machine) {
                script += &format!(
                    " && echo {user}:x:{uid}:{uid}::/tmp/{user}:/bin/sh >> /tmp/passwd \
                     && install -d -o {uid} -g {uid} /tmp/{user}"
                );
            }
            script += " && mount --bind /tmp/passwd /etc/passwd";
            cluster.node(machine).must_run(&["sh", "-c", &script])?;
        }
        Ok(Self { coordinator: None, others: Vec::new(), head: 0, cluster })
    }

    fn words<'a>(&self, step: &Step<'a>, home: &'a str) -> Result<Vec<String>, Failure> {
        let machine = number(step.machine)?;
        let mut words: Vec<String> = Vec::new();
        if let Some(user) = step.user {
            let found = accounts(machine).find(|(name, _)| *name == user);
            let (_, uid) = found
                .ok_or_else(|| Failure(format!("{user} has no account on {}", step.machine)))?;
            words.extend(
                ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"].map(String::from),
            );
        }
        words.extend(["env", "-u", "CKPTD_DIR", "-C", SHARED, home].map(String::from));
        words.extend(["sh", "-c", step.command].map(String::from));
        Ok(words)
    }

    fn begin(&self, step: &Step<'_>) -> Result<Background, Failure> {
        let home =
            step.user.map_or("HOME=/var/lib/root".to_owned(), |user| format!("HOME=/tmp/{user}"));
        let words = self.words(step, &home)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.cluster.node(number(step.machine)?).spawn(&words, &[])
    }

    fn run(&self, step: &Step<'_>) -> Result<Output, Failure> {
        let mut running = self.begin(step)?;
        let status = running.wait(LIMIT)?;
        Ok(Output { status, stdout: running.output(), stderr: running.errors() })
    }

    /// Until the members are these.
    fn wait_for(&self, names: &[&str]) -> Result<(), Failure> {
        let asks = Step { machine: MACHINES[self.head].0, user: None, command: self.nodes() };
        until(&format!("{names:?} are there"), LIMIT, || {
            let listed = self.run(&asks)?;
            let alive = |name: &&&str| {
                listed.stdout.lines().any(|line| line.starts_with(**name) && line.contains("alive"))
            };
            Ok((names.iter().filter(alive).count() == names.len()).then_some(()))
        })
    }

    fn nodes(&self) -> &'static str {
        if self.head == 0 { "ckptd nodes" } else { "ckptd nodes --dir /var/lib/ckptd/agent" }
    }

    /// A coordinator or an agent is started, and is there.
    fn serve(&mut self, step: &Step<'_>, members: &mut Vec<&'static str>) -> Result<(), Failure> {
        if step.command.contains("--recover") {
            // "head is lost": the machine with all that is on it.
            drop(self.coordinator.take());
            self.cluster.node(0).kill()?;
            self.head = number(step.machine)?;
        }
        let running = self.begin(step)?;
        if step.command.starts_with("ckptd agent") {
            self.others.push(running);
            members.push(MACHINES[number(step.machine)?].0);
        } else {
            self.coordinator = Some(running);
        }
        let there = self.wait_for(members);
        let last = self.others.last().or(self.coordinator.as_ref());
        there.map_err(|failure| match last {
            Some(last) => last.explain(&failure),
            None => failure,
        })
    }
}

/// What a command that ends must have come to, as the guide says.
fn judge(step: &Step<'_>, output: &Output, recovered: bool) -> Result<(), Failure> {
    let said = |text: &str| output.stdout.contains(text);
    let fits = match (step.machine, step.command) {
        ("node1", "ckptd ls") => said("hers") && !said("his"),
        ("desk", "ckptd ls") => said("his") && !said("hers"),
        ("head", "ckptd ls") | ("spare", _) => said("hers") && said("his"),
        ("desk", "ckptd stop hers") | ("node1", "ckptd stop his") => output.status == 125,
        ("head", "ckptd nodes") => MACHINES[1..].iter().all(|(name, _)| said(name)),
        ("head", "ckptd audit") => said("stop") && said("alice") && said("bob"),
        _ => true,
    };
    let fails = !recovered && step.command.starts_with("ckptd stop");
    let status = if fails { 125 } else { 0 };
    check(fits && output.status == status, || {
        format!("{} {:?}: {}: {output:?}", step.machine, step.user, step.command)
    })
}

fn owners(stage: &Stage) -> Result<(), Failure> {
    let mut institute = Institute::start(stage)?;
    let mut members = Vec::new();
    let mut jobs = Vec::new();
    for step in GUIDE.lines().filter_map(Step::of) {
        if step.serves() {
            institute.serve(&step, &mut members)?;
        } else if step.command.starts_with("ckptd run") {
            let job = institute.begin(&step)?;
            let elsewhere = if step.machine == "desk" { "bob\nbob" } else { "alice\napp" };
            let ran = until("the job has run on both machines", LIMIT, || {
                Ok(job.output().replace('\r', "").contains(elsewhere).then_some(()))
            });
            ran.map_err(|failure| job.explain(&failure))?;
            jobs.push(job);
        } else {
            let output = institute.run(&step)?;
            judge(&step, &output, institute.head != 0)?;
        }
    }
    check(jobs.len() == 2 && members.len() == 4, || "the guide has other lines".into())?;
    for job in &mut jobs {
        job.wait(Duration::from_secs(60))?;
    }
    Ok(())
}
