//! Slurm on a cluster: munged on each node, slurmctld on node0, slurmd on the others, and a user.

use std::path::Path;
use std::time::Duration;

use super::{Background, Cluster, Output, PATH, SHARED, Spec, until};
use crate::job::Failure;

/// The user of the jobs: without any right on any machine.
pub const USER: &str = "anna";
/// Another one, likewise.
pub const OTHER: &str = "bert";
/// Their numbers.
const USERS: [(&str, &str); 2] = [(USER, "4001"), (OTHER, "4002")];
/// How long the daemons may take to come up.
const UP_LIMIT: Duration = Duration::from_secs(30);
/// What a machine needs.
const PROGRAMS: [&str; 4] =
    ["/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/srun", "/usr/sbin/munged"];

/// What sites have in different ways.
pub struct Site {
    /// How the nodes' names in Slurm begin; the machines are node1, node2 ...
    pub prefix: &'static str,
    /// What becomes of a job whose nodes one of higher priority takes (PreemptMode).
    pub preempts_by: &'static str,
    /// Whether jobs may have the same processors (OverSubscribe); who is suspended and who has its nodes do.
    pub shares: &'static str,
}

impl Default for Site {
    fn default() -> Self {
        Self { prefix: "node", preempts_by: "REQUEUE", shares: "NO" }
    }
}

/// Nodes with Slurm.
pub struct Slurm {
    // The daemons go before their machines.
    daemons: Vec<Background>,
    cluster: Cluster,
    /// How the nodes' names in Slurm begin.
    prefix: String,
}

impl Slurm {
    /// Starts it on so many nodes of eight processors; all are idle when it returns. `None`: it is not installed.
    ///
    /// # Errors
    /// When anything does not come up.
    pub fn start(ckptd: &Path, nodes: usize) -> Result<Option<Slurm>, Failure> {
        Self::start_at(&Site::default(), ckptd, nodes)
    }

    /// The same, where a site has it otherwise.
    ///
    /// # Errors
    /// When anything does not come up.
    pub fn start_at(site: &Site, ckptd: &Path, nodes: usize) -> Result<Option<Slurm>, Failure> {
        if let Some(missing) = PROGRAMS.iter().find(|program| !Path::new(program).exists()) {
            println!("    skipped: no {missing}; tests/install installs it");
            return Ok(None);
        }
        let cluster = Cluster::start(&Spec::new(nodes))?;
        cluster.share(ckptd)?;
        cluster.share_script("epilog.sh", EPILOG)?;
        cluster.share_script("slurm.conf", &configuration(site, nodes))?;
        let key: String = std::iter::repeat_with(fastrand::alphanumeric).take(1024).collect();
        cluster.share_script("munge.key", &key)?;
        let mut slurm = Slurm { daemons: Vec::new(), cluster, prefix: site.prefix.to_owned() };
        for number in 0..=nodes {
            slurm.furnish(number)?;
            slurm.spawn(number, &MUNGED)?;
        }
        slurm.spawn(0, &["slurmctld", "-D"])?;
        for number in 1..=nodes {
            slurm.spawn_slurmd(number)?;
        }
        let idle = format!("{nodes} idle");
        let up = until("all nodes are idle", UP_LIMIT, || {
            let listed =
                slurm.run(0, &["sinfo", "--noheader", "--partition=all", "-o", "%D %T"])?;
            Ok((listed.stdout.trim() == idle).then_some(()))
        });
        up.map_err(|failure| slurm.explain(&failure))?;
        Ok(Some(slurm))
    }

    /// Starts a node of the allocation again after [`super::Node::kill`].
    ///
    /// # Errors
    /// When anything does not come up.
    pub fn revive(&mut self, number: usize) -> Result<(), Failure> {
        self.cluster.node(number).power_on()?;
        self.furnish(number)?;
        self.spawn(number, &MUNGED)?;
        self.spawn_slurmd(number)
    }

    fn spawn_slurmd(&mut self, number: usize) -> Result<(), Failure> {
        let name = format!("{}{number}", self.prefix);
        self.spawn(number, &["slurmd", "-D", "-N", &name])
    }

    /// The machines.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Users, a key, and folders of the daemons' own.
    fn furnish(&self, number: usize) -> Result<(), Failure> {
        let mut script = format!(
            "install -m 600 {SHARED}/munge.key /run/munge.key && mkdir -p /run/munge /run/log /run/lib \
             && mount --bind /run/log /var/log && mount --bind /run/lib /var/lib \
             && mkdir -p /var/log/munge /var/lib/munge && cp /etc/passwd /tmp/passwd"
        );
        for (name, uid) in USERS {
            let home = format!("{SHARED}/{name}");
            script += &format!(" && echo {name}:x:{uid}:{uid}::{home}:/bin/sh >> /tmp/passwd");
            script += &format!(" && install -d -o {uid} -g {uid} {home}");
        }
        script += " && mount --bind /tmp/passwd /etc/passwd";
        self.cluster.node(number).must_run(&["sh", "-c", &script]).map(drop)
    }

    fn spawn(&mut self, number: usize, words: &[&str]) -> Result<(), Failure> {
        let daemon = self.cluster.node(number).spawn(words, &ENVIRONMENT)?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// Runs a command of root's.
    ///
    /// # Errors
    /// When it does not end.
    pub fn run(&self, number: usize, words: &[&str]) -> Result<Output, Failure> {
        self.cluster.node(number).run(words, &ENVIRONMENT)
    }

    /// Starts a command of the user's, in her folder.
    ///
    /// # Errors
    /// When the node is down.
    pub fn begin(&self, number: usize, words: &[&str]) -> Result<Background, Failure> {
        self.begin_as(USER, number, words)
    }

    /// The same for one of the users.
    ///
    /// # Errors
    /// When the node is down.
    pub fn begin_as(
        &self,
        user: &str,
        number: usize,
        words: &[&str],
    ) -> Result<Background, Failure> {
        let home = format!("{SHARED}/{user}");
        let uid = USERS.iter().find(|(name, _)| *name == user).map_or("65534", |(_, uid)| uid);
        let (as_user, at_home) = (
            ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"],
            ["env", "-u", "CKPTD_DIR", "-C", &home],
        );
        let words = [&as_user[..], &at_home, words].concat();
        let environment =
            [&ENVIRONMENT[..], &[("HOME", &home), ("USER", user), ("LOGNAME", user)]].concat();
        self.cluster.node(number).spawn(&words, &environment)
    }

    /// A failure with what the daemons said.
    pub fn explain(&self, failure: &Failure) -> Failure {
        let begin = Failure(failure.0.clone());
        self.daemons.iter().fold(begin, |so_far, daemon| daemon.explain(&so_far))
    }
}

/// What sites are told to have.
const EPILOG: &str = include_str!("../../../packaging/slurm/epilog.sh");

const MUNGED: [&str; 4] = ["munged", "--foreground", "--force", "--key-file=/run/munge.key"];

/// Of all commands.
const ENVIRONMENT: [(&str, &str); 2] = [("SLURM_CONF", "/mnt/shared/slurm.conf"), ("PATH", PATH)];

/// slurm.conf(5). A requeued job waits until credentials of its run before have expired. Nodes are namespaces of one machine: their processes are told apart by /proc, not by control groups.
fn configuration(site: &Site, nodes: usize) -> String {
    let Site { prefix, preempts_by, shares } = site;
    format!(
        "ClusterName=test
SlurmctldHost=node0
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmdTimeout=10
KillWait=20
Epilog={SHARED}/epilog.sh
PreemptType=preempt/partition_prio
PreemptMode={preempts_by}
ReturnToService=2
MpiDefault=none
NodeName={prefix}[1-{nodes}] NodeHostname=node[1-{nodes}] NodeAddr=node[1-{nodes}] CPUs=8
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=20 OverSubscribe={shares}
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=2 PreemptMode=OFF OverSubscribe={shares}
"
    )
}
