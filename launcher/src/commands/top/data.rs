//! What is shown: the listings of `ckptd nodes` and `ckptd status`, in their JSON forms.

use crate::cluster::Cluster;
use crate::commands::Context;
use crate::commands::summary::JobSummary;
use crate::failure::Failure;
use protocol::cluster::client::Ask;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Processes looked at.
const MOST_PROCESSES: usize = 65_536;

/// Where it comes from.
pub enum Source {
    Cluster(Cluster),
    ThisMachine,
}

/// How things are at one moment.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// What it is a picture of.
    pub title: String,
    /// As `ckptd nodes --json`.
    pub nodes: Vec<Value>,
    /// As `ckptd status --json`.
    pub jobs: Vec<Value>,
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

impl Source {
    pub fn find(context: &Context) -> Result<Self, Failure> {
        Ok(context.cluster()?.map_or(Self::ThisMachine, Self::Cluster))
    }

    pub fn look(&self, context: &Context) -> Result<Picture, Failure> {
        match self {
            Self::Cluster(cluster) => {
                let what = "look at the cluster";
                let nodes = items(cluster.listing(what, &Ask::Nodes)?);
                let jobs = items(cluster.listing(what, &Ask::Status { job: None })?);
                Ok(Picture { title: "cluster".to_owned(), nodes, jobs })
            }
            Self::ThisMachine => {
                let mut jobs = Vec::new();
                let all = context.state.jobs(|_| {})?;
                let latest = all.last().map(|job| job.id().to_owned());
                for job in &all {
                    let newest = Some(job.id()) == latest.as_deref();
                    if job.is_running()? || (newest && jobs.is_empty()) {
                        jobs.push(summary(JobSummary::of(job)?));
                    }
                }
                Ok(Picture { title: "this machine".to_owned(), nodes: vec![machine()], jobs })
            }
        }
    }
}

/// A job of this machine, with the processes that run below its launcher.
fn summary(job: JobSummary) -> Value {
    let launcher = job.live.as_ref().map(|live| live.launcher_pid);
    let mut value = json!(job);
    if let (Some(launcher), Value::Object(fields)) = (launcher, &mut value) {
        fields.insert("processes".to_owned(), descendants(launcher.into()).into());
    }
    value
}

fn host() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn machine() -> Value {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load: Option<f64> = load.and_then(|text| text.split(' ').next()?.parse().ok());
    let cores = std::thread::available_parallelism().ok().map(usize::from);
    json!({ "name": host(), "state": "alive", "cores": cores, "load": load })
}

/// The processes below this one (proc_pid_stat(5)), but ckptd's own.
fn descendants(root: i64) -> Vec<Value> {
    let listing = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listing.filter_map(|entry| entry.file_name().to_str()?.parse::<i64>().ok());
    let mut children: HashMap<i64, Vec<(i64, String)>> = HashMap::new();
    for pid in pids.take(MOST_PROCESSES) {
        let Ok(text) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        if let Some((name, parent)) = parse(&String::from_utf8_lossy(&text)) {
            children.entry(parent).or_default().push((pid, name));
        }
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for (pid, name) in children.remove(&parent).unwrap_or_default() {
            next.push(pid);
            if name != "ckptd" && name != "ckptd-init" {
                found.push((pid, name));
            }
        }
    }
    found.sort_unstable();
    let host = host();
    let shown = |(pid, name)| json!({ "pid": pid, "name": name, "node": host });
    found.into_iter().map(shown).collect()
}

/// Name and parent in a /proc/PID/stat; the name stands in parentheses and may contain some.
fn parse(stat: &str) -> Option<(String, i64)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let parent = after.split_whitespace().nth(1)?.parse().ok()?;
    Some((name.to_owned(), parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses() {
        assert_eq!(parse("12 (a) b) S 7 12 12 0"), Some(("a) b".to_owned(), 7)));
        assert_eq!(parse("12 nothing"), None);
        let own = i64::from(std::process::id());
        let mut child = std::process::Command::new("sleep").arg("9").spawn().unwrap();
        let found = descendants(own);
        let pid = i64::from(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.iter().any(|process| process["pid"] == pid), "{found:?}");
    }
}
