//! The command tree in a simulated world, from seeds. `CKPTD_SEED=N` replays one, `CKPTD_SEEDS=N` tries
//! so many.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

mod hops;
mod random;
mod world;

use command_tree::Member;
use protocol::cluster::tree::{TreeAnswer, TreeCause, TreeMark, TreeMessage, TreeSum};
use random::Random;
use world::{MS, Weather, World, name, old_call};

fn seeds(usual: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("CKPTD_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("CKPTD_SEEDS").unwrap_or(usual)).collect(),
    }
}

fn weather(random: &mut Random) -> Weather {
    Weather {
        delay: [1, 5, 50][random.below(3) as usize] * MS,
        work: [1, 100][random.below(2) as usize] * MS,
        noticed: true,
    }
}

fn expected(world: &mut World, members: &[usize]) -> TreeSum {
    let mut sum = TreeSum::default();
    for (place, member) in world.places(members).iter().zip(members) {
        let instances = place.instances.len() as u32;
        let (processes, threads) = (10 * instances, 20 * instances);
        sum.add(&TreeSum { instances, processes, threads, pause_us: *member as u64 });
    }
    sum
}

/// Some of the members, in some order.
fn some(random: &mut Random, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    for place in (1..count).rev() {
        all.swap(place, random.below(place as u64 + 1) as usize);
    }
    all.truncate(1 + random.below(count as u64) as usize);
    all
}

#[test]
fn all_answer() {
    for seed in seeds(600) {
        let mut random = Random::new(seed);
        let count = 1 + random.below(60) as usize;
        let mut world = World::new(count, seed, weather(&mut random));
        world.reset(&[]);
        // Of several jobs at the same time, one after the other in each.
        for _ in 0..3 {
            let mut wanted = Vec::new();
            for job in ["a-1", "b-2", "c-3"] {
                let members = some(&mut random, count);
                let operation = world.begin(job, &members, 60_000);
                wanted.push((operation, expected(&mut world, &members), members.len()));
            }
            world.settle();
            for (operation, sum, members) in wanted {
                let outcome =
                    world.outcomes.iter().find(|outcome| outcome.order.operation == operation);
                assert_eq!(outcome.unwrap().result, Ok(sum), "seed {seed}");
                assert_eq!(world.worked[&operation], members as u32, "seed {seed}: once each");
            }
        }
        assert!(world.members.iter().flatten().all(Member::is_idle), "seed {seed}");
    }
}

/// One member leaves at any instant: the operation fails with its name, or everybody had answered.
/// The next one, without it, is not disturbed.
#[test]
fn a_member_that_leaves_is_named() {
    let mut failed = 0;
    for seed in seeds(3000) {
        let mut random = Random::new(seed);
        let count = 2 + random.below(40) as usize;
        let mut world = World::new(count, seed, weather(&mut random));
        world.weather.noticed = random.below(4) > 0;
        world.reset(&[]);
        let members = some(&mut random, count);
        let sum = expected(&mut world, &members);
        if random.below(2) == 0 {
            // The lines are there already.
            world.begin("a-1", &members, 20_000);
            world.settle();
            world.outcomes.clear();
        }
        let victim = members[random.below(members.len() as u64) as usize];
        let operation = world.begin("a-1", &members, 20_000);
        for _ in 0..random.below(6 * members.len() as u64 + 1) {
            world.step();
        }
        world.kill(victim);
        world.settle();
        assert!(world.members.iter().flatten().all(Member::is_idle), "seed {seed}: one waits");
        let outcomes: Vec<_> = world.outcomes.drain(..).collect();
        assert_eq!(outcomes.len(), 1, "seed {seed}");
        assert_eq!(outcomes[0].order.operation, operation);
        match &outcomes[0].result {
            Ok(answer) => assert_eq!(*answer, sum, "seed {seed}"),
            Err(failure) => {
                failed += 1;
                assert_eq!(failure.node, name(victim), "seed {seed}: {failure:?}");
                assert_eq!(failure.cause, TreeCause::Lost);
            }
        }
        let left: Vec<usize> = members.iter().copied().filter(|member| *member != victim).collect();
        if !left.is_empty() {
            // Where nobody has noticed that connections are gone, that takes an attempt each.
            world.weather.noticed = true;
            world.begin("a-1", &left, 20_000);
            world.settle();
            let outcome = world.outcomes.pop().unwrap();
            let sum = expected(&mut world, &left);
            assert_eq!(outcome.result, Ok(sum), "seed {seed}: the next operation");
        }
    }
    assert!(failed > 500 || failed > 0 && seeds(3000).len() < 3000, "only {failed} failed");
}

/// A step that fails at one member fails the operation at once, with its reason.
#[test]
fn a_failure_goes_up_at_once() {
    for seed in seeds(500) {
        let mut random = Random::new(seed);
        let count = 1 + random.below(40) as usize;
        let mut world = World::new(count, seed, weather(&mut random));
        world.reset(&[]);
        let members = some(&mut random, count);
        let culprit = members[random.below(members.len() as u64) as usize];
        world.refusing = Some(culprit);
        world.begin("a-1", &members, 20_000);
        world.settle();
        let outcome = world.outcomes.pop().unwrap();
        let failure = outcome.result.unwrap_err();
        assert_eq!(failure.node, name(culprit), "seed {seed}");
        assert_eq!(failure.cause, TreeCause::Step { passing: false });
        assert_eq!(failure.reason, "it would not");
        // Well before any limit.
        assert!(world.now < 5_000 * MS, "seed {seed}: {} ms", world.now / MS);
        world.refusing = None;
        world.begin("a-1", &members, 20_000);
        world.settle();
        let sum = expected(&mut world, &members);
        assert_eq!(world.outcomes.pop().unwrap().result, Ok(sum), "seed {seed}");
    }
}

/// A checkpoint is given up while its operation is on its way: whoever has heard of that begins nothing for it
/// any more, and the next checkpoint is not disturbed.
#[test]
fn what_was_given_up_is_not_begun() {
    let mut begun = 0;
    for seed in seeds(500) {
        let mut random = Random::new(seed);
        let count = 2 + random.below(40) as usize;
        let mut world = World::new(count, seed, weather(&mut random));
        world.reset(&[]);
        let members = some(&mut random, count);
        let operation = world.begin("a-1", &members, 20_000);
        for _ in 0..random.below(4 * members.len() as u64) {
            world.step();
        }
        for member in &members {
            // The word comes to one after the other.
            world.give_up(*member, "a-1");
            world.step();
        }
        world.settle();
        begun += u64::from(world.worked.contains_key(&operation));
        assert!(world.members.iter().flatten().all(Member::is_idle), "seed {seed}: one waits");
        world.outcomes.clear();
        world.checkpoint += 1;
        world.begin("a-1", &members, 20_000);
        world.settle();
        let sum = expected(&mut world, &members);
        assert_eq!(world.outcomes.pop().unwrap().result, Ok(sum), "seed {seed}: the next one");
    }
    assert!(begun > 100 || seeds(500).len() < 500, "only {begun} had begun");
}

/// From any state: operations under way in all their stages, full lines, leftovers of older
/// generations and answers that nobody waits for, a member or connection just gone. One member is told;
/// then every line is clean, and nothing is left in it.
#[test]
fn a_reset_clears_every_line() {
    for seed in seeds(3000) {
        let mut random = Random::new(seed);
        let count = 2 + random.below(24) as usize;
        let mut world = World::new(count, seed, weather(&mut random));
        world.reset(&[]);
        // A chain keeps everybody together; the rest by chance.
        for member in 1..count {
            world.connect(member - 1, member);
        }
        for _ in 0..random.below(2 * count as u64) {
            let (one, two) = (random.below(count as u64), random.below(count as u64));
            if one != two {
                world.connect(one as usize, two as usize);
            }
        }
        world.settle();
        let old = world.root.generation();
        for job in 0..random.below(4) {
            let members = some(&mut random, count);
            world.begin(&format!("k-{job}"), &members, 60_000);
        }
        for _ in 0..random.below(8 * count as u64) {
            world.step();
        }
        for _ in 0..random.below(6 * count as u64) {
            let Some(connection) = world.any_connection() else { break };
            let (_, taker) = world.ends(connection);
            let way = random.below(2) as usize;
            let message = match random.below(3) {
                0 => old_call(&mut random, old, taker, count),
                1 => TreeMessage::Answer(TreeAnswer {
                    operation: protocol::cluster::tree::Operation {
                        generation: old,
                        number: random.below(50),
                    },
                    failures: Vec::new(),
                    sum: TreeSum::default(),
                }),
                _ => TreeMessage::Mark(TreeMark { generation: random.below(old), seal: None }),
            };
            world.stuff(connection, way, message);
        }
        let told = random.below(count as u64) as usize;
        world.reset(&[told]);
        world.outcomes.clear();
        world.settle();
        let generation = world.root.generation();
        for (number, member) in world.members.iter().enumerate() {
            let member = member.as_ref().unwrap();
            assert_eq!(member.generation(), generation, "seed {seed}: n{number}");
            assert!(member.is_idle(), "seed {seed}: n{number}");
        }
        for (member, line) in world.lines() {
            let known = world.members[member].as_ref().unwrap();
            assert!(known.is_clean(&line), "seed {seed}: n{member} to {line:?}");
        }
        assert!(world.outcomes.is_empty(), "seed {seed}: given up without a word");
        let members = some(&mut random, count);
        world.begin("a-1", &members, 60_000);
        world.settle();
        let sum = expected(&mut world, &members);
        assert_eq!(world.outcomes.pop().unwrap().result, Ok(sum), "seed {seed}");
    }
}

/// Members and connections go all the time, and generations begin in the middle of each other: every
/// operation comes to an end, and the tree works once the weather is fine.
#[test]
fn nobody_waits_for_ever() {
    for seed in seeds(800) {
        let mut random = Random::new(seed);
        let count = 3 + random.below(30) as usize;
        let mut world = World::new(count, seed, weather(&mut random));
        world.reset(&[]);
        let mut begun = 0;
        for _ in 0..12 {
            let members = some(&mut random, count);
            let job = format!("j-{}", random.below(4));
            world.begin(&job, &members, 5_000);
            begun += 1;
            for _ in 0..random.below(5 * count as u64) {
                world.step();
            }
            match random.below(5) {
                0 => {
                    if let Some(connection) = world.any_connection() {
                        world.cut(connection);
                    }
                }
                1 if world.members.iter().flatten().count() > 2 => {
                    let member = random.below(count as u64) as usize;
                    world.kill(member);
                }
                2 => {
                    begun = world.outcomes.len();
                    let told = some(&mut random, count);
                    world.reset(&told);
                }
                _ => {}
            }
        }
        world.settle();
        assert_eq!(world.outcomes.len(), begun, "seed {seed}");
        assert!(world.members.iter().flatten().all(Member::is_idle), "seed {seed}");
        let left: Vec<usize> =
            (0..count).filter(|number| world.members[*number].is_some()).collect();
        world.reset(&[]);
        world.outcomes.clear();
        world.begin("z-1", &left, 60_000);
        world.settle();
        let sum = expected(&mut world, &left);
        assert_eq!(world.outcomes.pop().unwrap().result, Ok(sum), "seed {seed}");
    }
}
