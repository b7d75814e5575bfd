//! The allocation of Slurm that a command is called in.

use crate::failure::Failure;
use std::collections::BTreeSet;
use std::process::Command;

/// Nodes that Slurm has given to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The job's number.
    pub job: String,
    /// Its nodes, in Slurm's order.
    pub nodes: Vec<Node>,
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
        let names = expand(&nodes)?;
        // What was asked for, else what the nodes have.
        let tasks = variable("SLURM_TASKS_PER_NODE");
        let processors = variable("SLURM_JOB_CPUS_PER_NODE");
        let slots = slots(tasks.as_deref(), processors.as_deref(), names.len())?;
        let nodes = names.into_iter().zip(slots);
        let nodes = nodes.map(|(name, slots)| Node { name, slots }).collect();
        Ok(Self { job, nodes })
    }

    /// Whether Slurm still has it run: what is cancelled or has come to its time limit does not. Where Slurm does not tell, it
    /// does not.
    pub fn is_running(&self) -> bool {
        let show = ["--oneliner", "show", "job", &self.job];
        let told = Command::new("scontrol").args(show).output();
        told.is_ok_and(|told| {
            let text = String::from_utf8_lossy(&told.stdout);
            text.split_whitespace().any(|word| word == "JobState=RUNNING")
        })
    }

    /// The names.
    pub fn names(&self) -> BTreeSet<&str> {
        self.nodes.iter().map(|node| node.name.as_str()).collect()
    }
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

/// Of each node: tasks, which Slurm tells as one for each node where nobody has asked for any; processors then.
fn slots(tasks: Option<&str>, processors: Option<&str>, nodes: usize) -> Result<Vec<u32>, Failure> {
    let of = |text: &str| counts(text).filter(|counts| counts.len() == nodes);
    let tasks = tasks.and_then(of).filter(|counts| counts.iter().any(|count| *count > 1));
    tasks.or_else(|| processors.and_then(of)).ok_or_else(|| {
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
        let of = |tasks, processors| slots(tasks, processors, 2).ok();
        assert_eq!(of(Some("3(x2)"), Some("8(x2)")), Some(vec![3, 3]));
        assert_eq!(of(Some("1(x2)"), Some("8(x2)")), Some(vec![8, 8]));
        assert_eq!(of(None, Some("8,4")), Some(vec![8, 4]));
        assert_eq!(of(Some("2(x3)"), None), None, "of another number of nodes");
    }
}
