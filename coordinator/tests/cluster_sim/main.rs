//! A whole cluster in one process, from a seed: machines crash, links are cut, agents and the
//! coordinator are killed at any instant, its disk is full at times, its machine is lost for ever and another
//! coordinator carries on from a copy of its log. Whatever happens, the job's output
//! comes once, in order and whole, and its status is its own.
//!
//! `CKPTD_SEED=N` replays one history, `CKPTD_TRACE=1` prints it, `CKPTD_SEEDS=N` sets how many are
//! tried; with `CKPTD_ADDRESSES=0` machines keep their addresses.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

#[path = "../common/mod.rs"]
mod common;
mod machine;
mod random;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use world::{Outcome, World};

/// Histories that are tried.
const SEEDS: u64 = 10_000;
const THREADS: u64 = 2;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Over announced departures and joins nothing is lost, and nothing is shown twice.
#[test]
fn calm_histories_lose_nothing() {
    if let Some(seed) = number("CKPTD_CALM_SEED") {
        let outcome = World::calm(seed).run();
        eprintln!("seed {seed}: {outcome:?}");
        return;
    }
    let (mut leaves, mut joins, mut drains, mut emptied) = (0, 0, 0, 0);
    for seed in 0..number("CKPTD_SEEDS").unwrap_or(SEEDS) / 5 {
        let run = catch_unwind(AssertUnwindSafe(|| World::calm(seed).run()));
        let Ok(outcome) = run else { panic!("replay with CKPTD_CALM_SEED={seed}") };
        leaves += outcome.leaves;
        joins += outcome.joins;
        drains += outcome.drains;
        emptied += outcome.emptied;
    }
    eprintln!(
        "{leaves} moves for leavers, {joins} for newcomers, {drains} away from drained nodes, {emptied} of them empty"
    );
    assert!(leaves > 100 && joins > 5 && drains > 10 && emptied > 100);
}

#[test]
fn every_history_ends_well() {
    if let Some(seed) = number("CKPTD_SEED") {
        let outcome = World::new(seed).run();
        eprintln!("seed {seed}: {outcome:?}");
        return;
    }
    let seeds = number("CKPTD_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let work = || {
        let mut outcomes: Vec<(u64, Option<Outcome>)> = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return outcomes;
            }
            let run = catch_unwind(AssertUnwindSafe(|| World::new(seed).run()));
            outcomes.push((seed, run.ok()));
        }
    };
    let outcomes: Vec<(u64, Option<Outcome>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let failed: Vec<u64> =
        outcomes.iter().filter(|(_, run)| run.is_none()).map(|(seed, _)| *seed).collect();
    let sum = |field: fn(&Outcome) -> u32| -> u64 {
        outcomes.iter().filter_map(|(_, run)| run.as_ref()).map(|run| u64::from(field(run))).sum()
    };
    eprintln!(
        "{seeds} histories: {} commits, {} rollbacks, {} of them for new addresses, {} moves for leavers, {} for newcomers and {} \
         away from drained nodes, {} of these empty, {} farewells, {} restarts, {} recoveries, {} machines of a coordinator lost, {} lacking \
         output, {} given up, {} came to rest, {} steps by the tree, {} of them failed",
        sum(|run| run.commits),
        sum(|run| run.rollbacks),
        sum(|run| run.addresses),
        sum(|run| run.leaves),
        sum(|run| run.joins),
        sum(|run| run.drains),
        sum(|run| run.emptied),
        sum(|run| run.farewells),
        sum(|run| run.restarts),
        sum(|run| run.recoveries),
        sum(|run| run.lost),
        sum(|run| run.lacking),
        sum(|run| run.given_up),
        sum(|run| run.rests),
        sum(|run| run.by_tree),
        sum(|run| run.tree_failed),
    );
    assert!(
        failed.is_empty(),
        "{} histories failed; replay with CKPTD_SEED=N and CKPTD_TRACE=1: {:?}",
        failed.len(),
        &failed[..failed.len().min(20)]
    );
    // A simulation in which nothing happens proves nothing.
    assert!(sum(|run| run.rollbacks) > seeds / 2);
    assert!(!world::addresses_change() || sum(|run| run.addresses) > seeds / 20);
    assert!(sum(|run| run.commits) > seeds);
    assert!(sum(|run| run.drains) > seeds / 20 && sum(|run| run.emptied) > seeds / 2);
    assert!(sum(|run| run.by_tree) > seeds);
    assert!(sum(|run| run.tree_failed) > seeds / 20);
    assert!(sum(|run| run.rests) > seeds / 50);
    assert!(sum(|run| run.lost) > seeds / 10);
    assert!(sum(|run| run.lacking) <= seeds / 50);
    assert!(sum(|run| run.given_up) + sum(|run| run.superseded) <= seeds / 50);
}
