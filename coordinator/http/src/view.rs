//! What the page is told: listings of the coordinator and what the log says, in one JSON value.

use crate::history::{History, JobLine};
use crate::role::Sight;
use coordinator::cluster::entry::RollbackRecord;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Processes of a job that are shown.
const MOST_PROCESSES: usize = 128;
/// Machines to which processes went in one recovery that are shown.
const MOST_MOVES: usize = 16;
/// Machines that are shown.
const MOST_NODES: usize = 1024;
/// Jobs that run and are shown.
const MOST_JOBS: usize = 64;

/// Lines about what somebody should look after that are shown.
const MOST_ATTENTION: usize = 50;

/// What was last heard of the cluster.
#[derive(Debug, Default)]
pub struct Listings {
    /// As `ckptd nodes --json`.
    pub nodes: Value,
    /// As `ckptd status --json`: the jobs that run.
    pub jobs: Value,
    /// What somebody should look after, and which members are drained.
    pub around: Value,
    /// When, in milliseconds since 1970 UTC.
    pub at: u64,
    /// Why nothing newer is known.
    pub error: Option<String>,
}

/// The members of a list, as far as they are shown.
pub fn items(value: &Value, most: usize) -> impl Iterator<Item = &Value> {
    list(value).iter().take(most)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// What somebody sees who may see so much: of jobs those that the coordinator's socket would list to that user.
pub fn view(listings: &Listings, history: &History, sight: &Sight) -> Value {
    let nodes: Vec<Value> =
        items(&listings.nodes, MOST_NODES).map(|node| of_node(node, history)).collect();
    let mut jobs: BTreeMap<(u64, String), Value> = BTreeMap::new();
    for (id, line) in
        history.jobs().filter(|(_, line)| line.over.is_some() && sight.may_see(&line.user))
    {
        jobs.insert((line.created, id.clone()), of_job(id, None, Some(line)));
    }
    // The oldest come first.
    let is_seen = |job: &&Value| sight.may_see(job["user"].as_str().unwrap_or_default());
    let running: Vec<&Value> = list(&listings.jobs).iter().filter(is_seen).collect();
    let left_out = running.len().saturating_sub(MOST_JOBS);
    for job in running.into_iter().skip(left_out) {
        let id = job["id"].as_str().unwrap_or_default();
        let created = job["created_at_ms"].as_u64().unwrap_or_default();
        jobs.insert((created, id.to_owned()), of_job(id, Some(job), history.job(id)));
    }
    let attention = items(&listings.around["attention"], MOST_ATTENTION);
    // Whose jobs are in the way of a drain is for operators, as at the coordinator's socket.
    let attention = attention.filter(|one| sight.user.is_none() || one["what"] != "drain");
    let attention: Vec<&str> = attention.filter_map(|one| one["text"].as_str()).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": listings.at,
        "error": listings.error,
        "attention": attention,
        "nodes": nodes,
        // Running ones that are not among them.
        "more_jobs": left_out,
        // The newest first.
        "jobs": jobs.into_values().rev().collect::<Vec<_>>(),
    })
}

/// Some keys of a listing, as they are there.
fn picked(value: &Value, keys: &[&str]) -> Map<String, Value> {
    let pick = |key: &&str| Some(((*key).to_owned(), value.get(*key)?.clone()));
    keys.iter().filter_map(pick).collect()
}

fn of_node(node: &Value, history: &History) -> Value {
    const KEYS: &[&str] = &[
        "name",
        "state",
        "role",
        "owner",
        "slots",
        "spare",
        "cores",
        "speed",
        "load",
        "battery",
        "charging",
        "memory",
        "available_memory",
        "instances",
        "holds",
    ];
    let mut shown = picked(node, KEYS);
    let name = node["name"].as_str().unwrap_or_default();
    shown.insert("gone".into(), history.gone(name).collect());
    Value::Object(shown)
}

fn of_job(id: &str, listed: Option<&Value>, line: Option<&JobLine>) -> Value {
    let mut shown = Map::new();
    if let Some(line) = line {
        let checkpoints: Vec<Value> = line.checkpoints.iter().map(|one| json!(one)).collect();
        let known = json!({
            "name": line.name,
            "user": line.user,
            "command": line.command,
            "created": line.created,
            "over": line.over,
            "end": line.end,
            "state": "over",
            "checkpoints": checkpoints,
            "stops": line.stops.iter().map(of_stop).collect::<Vec<_>>(),
            "paths": line.paths.shown().collect::<Vec<_>>(),
            "more": line.paths.more(),
        });
        if let Value::Object(known) = known {
            shown.extend(known);
        }
    }
    if let Some(listed) = listed {
        const KEYS: &[&str] = &["name", "user", "command", "state", "epoch", "failure"];
        shown.extend(picked(listed, KEYS));
        let processes = items(&listed["processes"], MOST_PROCESSES);
        let keys = ["pid", "name", "node", "home", "why"];
        let processes = processes.map(|process| Value::Object(picked(process, &keys)));
        shown.insert("processes".into(), processes.collect());
        shown.insert("created".into(), listed["created_at_ms"].clone());
        let live = picked(&listed["live"], &["interval_s", "next_checkpoint_ms", "in_flight"]);
        shown.insert("live".into(), Value::Object(live));
        shown.insert("waiting".into(), copies_waiting(listed).into());
    }
    shown.insert("id".into(), id.into());
    Value::Object(shown)
}

fn of_stop(stop: &RollbackRecord) -> Value {
    let began = Some(stop.lost_at_ms).filter(|at| *at > 0).unwrap_or(stop.declared_ms);
    // How many processes went to which machine.
    let mut moves: BTreeMap<&str, usize> = BTreeMap::new();
    for one in &stop.moves {
        let known = moves.len();
        match moves.get_mut(one.to.as_str()) {
            Some(count) => *count += 1,
            None if known < MOST_MOVES => drop(moves.insert(one.to.as_str(), 1)),
            None => {}
        }
    }
    json!({
        "reason": stop.reason,
        "node": stop.node,
        "checkpoint": stop.checkpoint,
        "from": began,
        "to": stop.running_ms.unwrap_or(stop.declared_ms).max(began),
        "is_move": stop.is_move(),
        "moves": moves,
    })
}

/// States of jobs that are not over.
pub const JOB_STATES: [&str; 3] = ["starting", "running", "restoring"];

/// Copies of images that a job's newest checkpoint lacks of those that were asked for; of one that is over nobody makes any.
pub fn copies_waiting(job: &Value) -> u64 {
    if !job["state"].as_str().is_some_and(|state| JOB_STATES.contains(&state)) {
        return 0;
    }
    let wanted = job["settings"]["copies"].as_u64().unwrap_or(1);
    let newest = job["checkpoints"].as_array().and_then(|all| all.last());
    let images = newest.map_or(&Value::Null, |newest| &newest["images"]);
    let lacks = |image: &Value| {
        let there = image["holders"].as_array().map_or(0, Vec::len) as u64;
        wanted.saturating_sub(there)
    };
    items(images, usize::MAX).map(lacks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;

    #[test]
    fn a_job_that_runs_is_shown_with_what_the_coordinator_lists() {
        let listings = Listings {
            nodes: json!([{"name": "a", "state": "alive", "load": 0.5, "address": "10.0.0.1:1"}]),
            jobs: json!([{"id": "fold-1", "name": "<b>", "created_at_ms": 5, "state": "running",
                "settings": {"copies": 2}, "live": null,
                "processes": [{"pid": 3, "name": "rank", "node": "a", "work": 2.0}],
                "checkpoints": [{"images": [{"holders": ["a"]}, {"holders": ["a", "b"]}]}]}]),
            around: json!({"attention": [{"what": "disk", "text": "a has a full disk"}, {"what": "x"}]}),
            at: 7,
            error: None,
        };
        let shown = view(&listings, &History::default(), &Sight::own(Role::Viewer));
        assert_eq!(shown["attention"], json!(["a has a full disk"]));
        assert_eq!(
            shown["nodes"],
            json!([{"name": "a", "state": "alive", "load": 0.5, "gone": []}])
        );
        let job = &shown["jobs"][0];
        assert_eq!((&job["name"], &job["waiting"]), (&json!("<b>"), &json!(1)));
        assert_eq!(job["processes"], json!([{"pid": 3, "name": "rank", "node": "a"}]));
    }

    #[test]
    fn who_sees_one_users_jobs_sees_no_others() {
        let job = |id: &str, user: &str| json!({"id": id, "user": user, "state": "running"});
        let mut jobs = vec![job("hers-1", "alice"), job("nobodys-1", "")];
        jobs.extend((0..MOST_JOBS + 2).map(|number| job(&format!("his-{number}"), "bob")));
        let listings = Listings { jobs: json!(jobs), ..Listings::default() };
        let seen_by = |user: Option<&str>| {
            let sight = Sight { user: user.map(str::to_owned), ..Sight::own(Role::Viewer) };
            let shown = view(&listings, &History::default(), &sight);
            (list(&shown["jobs"]).len(), shown["more_jobs"].as_u64().unwrap())
        };
        assert_eq!(seen_by(None), (MOST_JOBS, 4));
        assert_eq!(seen_by(Some("alice")), (1, 0));
        assert_eq!(seen_by(Some("bob")), (MOST_JOBS, 2));
        assert_eq!(seen_by(Some("carol")), (0, 0));
    }

    #[test]
    fn what_is_listed_in_another_form_is_left_out() {
        for odd in [Value::Null, json!("x"), json!([null, 3, {}, {"id": 3}])] {
            let (nodes, jobs, around) = (odd.clone(), odd.clone(), odd);
            let listings = Listings { nodes, jobs, around, at: 1, error: None };
            view(&listings, &History::default(), &Sight::own(Role::Viewer));
        }
    }
}
