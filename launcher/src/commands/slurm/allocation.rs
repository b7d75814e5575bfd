//! The allocation of Slurm that a command is called in.

use crate::failure::Failure;
use protocol::cluster::NodeName;
use protocol::cluster::host_label;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// How scontrol tells of a job that has no nodes.
const NO_NODES: [&str; 2] = ["", "(null)"];

/// Nodes that Slurm has given to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The job's number.
    pub job: String,
    /// What Slurm's commands take it by, where that is another: `ARRAY_TASK`. The last task of an array that started has the
    /// number of the whole, by which they mean all of its tasks (slurmctld, job_requeue2).
    task: Option<String>,
    /// Its nodes, in Slurm's order.
    pub nodes: Vec<Node>,
    /// Nodes that it had when it began: Slurm has taken them out since, as they are down (`--no-kill`).
    pub lost: Vec<String>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// As Slurm calls it.
    pub name: String,
    /// How many processes of the job it takes.
    pub slots: u32,
}

impl Allocation {
    /// The one that this process runs in.
    ///
    /// # Errors
    /// Where there is none, or Slurm does not tell what it has.
    pub fn of_environment() -> Result<Self, Failure> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let nodes = variable("SLURM_JOB_NODELIST").or_else(|| variable("SLURM_NODELIST"));
        let (Some(job), Some(nodes)) = (variable("SLURM_JOB_ID"), nodes) else {
            return Err(failed("there is none: call this in a script of sbatch, or in salloc"));
        };
        // What a job that has submitted this one had in its environment is here, too: the record tells what is this one's own.
        let array = variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID"));
        let task = array.map(|(array, task)| format!("{array}_{task}"));
        let task = task.map(|task| (shown(&task), Some(task)));
        let task = task.filter(|(record, _)| field(record, "JobId") == Some(&job));
        let (record, task) = task.unwrap_or_else(|| (shown(&job), None));
        if variable("SLURM_HET_SIZE").is_some() && field(&record, "HetJobId").is_some() {
            return Err(failed(
                "it is one of several components, which can't be one cluster: ask for nodes without ':'",
            ));
        }
        let names = expand(&nodes)?;
        members_of(&names)?;
        let tasks = Tasks {
            counts: variable("SLURM_TASKS_PER_NODE"),
            are_asked_for: asks_for_tasks(&record),
        };
        let processors = variable("SLURM_JOB_CPUS_PER_NODE");
        let slots = slots(&tasks, processors.as_deref(), names.len())?;
        let nodes = names.into_iter().zip(slots);
        let nodes = nodes.map(|(name, slots)| Node { name, slots }).collect();
        let now = match field(&record, "NodeList").filter(|list| !NO_NODES.contains(list)) {
            Some(list) => expand(list).unwrap_or_default(),
            None => Vec::new(),
        };
        let (nodes, lost) = still_there(nodes, &now);
        Ok(Self { job, task, nodes, lost })
    }

    /// What Slurm's commands take this job by, and no other.
    pub fn id(&self) -> &str {
        self.task.as_deref().unwrap_or(&self.job)
    }

    /// Whether Slurm still has it run: what is cancelled or has come to its time limit does not. Where Slurm does not tell, it
    /// does not.
    pub fn is_running(&self) -> bool {
        shown(self.id()).split_whitespace().any(|word| word == "JobState=RUNNING")
    }

    /// What its nodes are called in the cluster.
    pub fn members(&self) -> BTreeSet<String> {
        self.nodes.iter().map(|node| host_label(&node.name)).collect()
    }
}

/// Nodes that are in the allocation still, of which Slurm tells `now`, and the names of the others. Where Slurm tells none of
/// them, what it told at the beginning stands.
fn still_there(nodes: Vec<Node>, now: &[String]) -> (Vec<Node>, Vec<String>) {
    if !nodes.iter().any(|node| now.contains(&node.name)) {
        return (nodes, Vec::new());
    }
    let (there, lost): (Vec<Node>, Vec<Node>) =
        nodes.into_iter().partition(|node| now.contains(&node.name));
    (there, lost.into_iter().map(|node| node.name).collect())
}

/// Nodes by their names in the cluster.
fn members_of(names: &[String]) -> Result<BTreeMap<String, &str>, Failure> {
    let mut members = BTreeMap::new();
    for name in names {
        let member = host_label(name);
        member.parse::<NodeName>().map_err(failed)?;
        if let Some(other) = members.insert(member.clone(), name.as_str()) {
            return Err(failed(format!(
                "{other} and {name} would both be {member} in the cluster"
            )));
        }
    }
    Ok(members)
}

/// What scontrol tells of a job, in a line for each task; nothing where it can't.
fn shown(job: &str) -> String {
    let told = Command::new("scontrol").args(["--oneliner", "show", "job", job]).output();
    told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default()
}

/// A field of it, such as `JobId=7`.
fn field<'r>(record: &'r str, name: &str) -> Option<&'r str> {
    record.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Whether somebody has asked for tasks on each node, or for several processors for each.
fn asks_for_tasks(record: &str) -> bool {
    let number = |name| {
        let text = field(record, name).unwrap_or_default();
        text.split(':').next().and_then(|text| text.parse::<u32>().ok()).unwrap_or_default()
    };
    number("NtasksPerN:B:S:C") > 0 || number("CPUs/Task") > 1
}

fn failed(cause: impl std::fmt::Display) -> Failure {
    Failure::of("find the allocation of Slurm", cause)
}

/// Names in a list such as `node[1-3,7]`.
fn expand(list: &str) -> Result<Vec<String>, Failure> {
    let asked = Command::new("scontrol").args(["show", "hostnames", list]).output();
    let asked = asked.map_err(|error| failed(format!("scontrol: {error}")))?;
    let names: Vec<String> =
        String::from_utf8_lossy(&asked.stdout).split_whitespace().map(str::to_owned).collect();
    if asked.status.success() && !names.is_empty() {
        return Ok(names);
    }
    let said = String::from_utf8_lossy(&asked.stderr);
    Err(failed(format!("scontrol tells no names of {list}: {}", said.trim())))
}

/// Tasks of an allocation.
struct Tasks {
    /// So many on each node: one, where nobody has asked for any.
    counts: Option<String>,
    /// Whether somebody has, or for the processors of each.
    are_asked_for: bool,
}

/// Of each node: tasks, if they are asked for, else processors.
fn slots(tasks: &Tasks, processors: Option<&str>, nodes: usize) -> Result<Vec<u32>, Failure> {
    let of = |text: &str| counts(text).filter(|counts| counts.len() == nodes);
    let told = tasks.counts.as_deref().and_then(of);
    let told = told.filter(|counts| tasks.are_asked_for || counts.iter().any(|count| *count > 1));
    told.or_else(|| processors.and_then(of)).ok_or_else(|| {
        failed("neither SLURM_TASKS_PER_NODE nor SLURM_JOB_CPUS_PER_NODE tells slots")
    })
}

/// Numbers in a list such as `2(x3),1`: two on each of three nodes, one on the fourth.
fn counts(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse::<usize>().ok()?),
            None => (part, 1),
        };
        // Nobody has more nodes.
        if times > 100_000 {
            return None;
        }
        all.extend(std::iter::repeat_n(count.parse::<u32>().ok()?.max(1), times));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_in_short() {
        assert_eq!(counts("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(counts("16"), Some(vec![16]));
        for wrong in ["", "2(x", "2(x3", "a", "2(x999999999)", "-1"] {
            assert_eq!(counts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tasks_go_before_processors() {
        let with = |counts: Option<&str>, are_asked_for, processors| {
            slots(&Tasks { counts: counts.map(str::to_owned), are_asked_for }, processors, 2).ok()
        };
        let of = |counts, processors| with(counts, false, processors);
        assert_eq!(of(Some("3(x2)"), Some("8(x2)")), Some(vec![3, 3]));
        assert_eq!(of(Some("1(x2)"), Some("8(x2)")), Some(vec![8, 8]));
        assert_eq!(of(None, Some("8,4")), Some(vec![8, 4]));
        assert_eq!(of(Some("2(x3)"), None), None, "of another number of nodes");
        let hybrid = with(Some("1(x2)"), true, Some("8(x2)"));
        assert_eq!(hybrid, Some(vec![1, 1]), "a task of eight processors");
    }

    #[test]
    fn a_record_tells_what_was_asked_for() {
        let of = |processors: u32, each: u32| {
            format!(
                "JobId=77 NumTasks=3 CPUs/Task={processors} NtasksPerN:B:S:C={each}:0:*:* CoreSpec=*"
            )
        };
        assert!(!asks_for_tasks(&of(1, 0)) && !asks_for_tasks(""));
        assert!(asks_for_tasks(&of(4, 0)) && asks_for_tasks(&of(1, 1)));
        assert_eq!(field(&of(1, 0), "JobId"), Some("77"));
        assert_eq!(field(&of(1, 0), "HetJobId"), None);
    }

    #[test]
    fn nodes_are_called_as_hosts_are() {
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let (good, told) = (names(&["Node_1", "node2.site"]), ["node-1", "node2-site"]);
        assert_eq!(members_of(&good).unwrap().into_keys().collect::<Vec<_>>(), told);
        for bad in [&["n_1", "N-1"][..], &["_"]] {
            members_of(&names(bad)).unwrap_err();
        }
    }

    #[test]
    fn nodes_that_slurm_has_taken_out_are_left_out() {
        let of = |names: &[&str]| -> Vec<Node> {
            names.iter().map(|name| Node { name: (*name).to_owned(), slots: 2 }).collect()
        };
        let all = of(&["n1", "n2", "n3"]);
        let now = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            still_there(all.clone(), &names)
        };
        assert_eq!(now(&["n1", "n3"]), (of(&["n1", "n3"]), vec!["n2".to_owned()]));
        assert_eq!(now(&["n3", "n2", "n1"]), (all.clone(), Vec::new()));
        // Slurm does not tell.
        assert_eq!(now(&[]), (all.clone(), Vec::new()));
    }

    #[test]
    fn a_task_of_an_array_is_not_the_whole() {
        let of = |task: Option<&str>| Allocation {
            job: "7".to_owned(),
            task: task.map(str::to_owned),
            nodes: Vec::new(),
            lost: Vec::new(),
        };
        assert_eq!((of(None).id(), of(Some("5_3")).id()), ("7", "5_3"));
    }
}
