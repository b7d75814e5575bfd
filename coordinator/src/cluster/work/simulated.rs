//! Programs in a simulated world: what their processes are seen to do, and whether a plan by what is learned of that is any worse
//! than one that takes all for alike.

use super::figures::{Figure, even_out};
use super::interval::{Silence, Spell, shares};
use std::collections::BTreeMap;

/// How a rank waits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Waiting {
    /// It sleeps.
    Sleeps,
    /// It looks, and gives its turn to whoever has something to do.
    Yields,
    /// It looks, and takes its part of the machine.
    Spins,
}

/// A core of one machine is enough for anybody; a machine may have a part of one.
#[derive(Debug, Clone, Copy)]
struct Node {
    cores: f64,
    speed: f64,
}

#[derive(Debug)]
struct Program {
    nodes: Vec<Node>,
    /// Each rank's work in a round, and its node.
    ranks: Vec<(f64, usize)>,
    waiting: Waiting,
    /// The program's time for the kernel's of who waits.
    idle: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Done {
    user: f64,
    system: f64,
    waited: f64,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.next()
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() * most as f64) as usize % most
    }
}

impl Program {
    /// A round: until everybody has done its part, with what each did until then. Its length.
    fn round(&self, done: &mut [Done]) -> f64 {
        let mut left: Vec<f64> = self.ranks.iter().map(|(work, _)| *work).collect();
        let mut time = 0.0;
        while left.iter().any(|left| *left > 1e-12) {
            let rates = self.rates(&left);
            let ends =
                left.iter().zip(&rates).zip(&self.ranks).filter(|((left, _), _)| **left > 1e-12);
            let step = ends
                .map(|((left, rate), (_, node))| left / (rate.0 * self.nodes[*node].speed))
                .fold(f64::INFINITY, f64::min);
            for (rank, (rate, waits)) in rates.iter().enumerate() {
                let ran = rate * step;
                done[rank].waited += waits * step;
                if left[rank] > 1e-12 {
                    done[rank].user += ran;
                    left[rank] -= ran * self.nodes[self.ranks[rank].1].speed;
                } else {
                    done[rank].user += ran * self.idle / (1.0 + self.idle);
                    done[rank].system += ran / (1.0 + self.idle);
                }
            }
            time += step;
        }
        time
    }

    /// What each has of a CPU, and how much of one it lacks, while these have something left to do.
    fn rates(&self, left: &[f64]) -> Vec<(f64, f64)> {
        let mut rates = vec![(0.0, 0.0); left.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            let here = |busy: bool| {
                let of = move |rank: &usize| {
                    self.ranks[*rank].1 == index && (left[*rank] > 1e-12) == busy
                };
                (0..left.len()).filter(of).collect::<Vec<usize>>()
            };
            let (busy, idle) = (here(true), here(false));
            let mut share = |ranks: &[usize], cores: f64| {
                let each = (cores / ranks.len().max(1) as f64).min(1.0);
                ranks.iter().for_each(|rank| rates[*rank] = (each, 1.0 - each));
                cores - each * ranks.len() as f64
            };
            match self.waiting {
                Waiting::Sleeps => drop(share(&busy, node.cores)),
                Waiting::Yields => {
                    let over = share(&busy, node.cores);
                    share(&idle, over.max(0.0));
                }
                Waiting::Spins => drop(share(&[busy, idle].concat(), node.cores)),
            }
        }
        rates
    }

    /// What is seen of an interval of so many rounds, with so much noise.
    fn spells(
        &self,
        rounds: usize,
        idle: Option<f64>,
        noise: f64,
        random: &mut Random,
    ) -> Vec<Spell<usize>> {
        let mut done = vec![Done::default(); self.ranks.len()];
        let time: f64 = (0..rounds).map(|_| self.round(&mut done)).sum();
        let mut about = |value: f64| value * random.between(1.0 - noise, 1.0 + noise);
        let spell = |(rank, done): (usize, &Done)| Spell {
            process: rank,
            machine: self.ranks[rank].1,
            speed: self.nodes[self.ranks[rank].1].speed,
            user: about(done.user),
            system: about(done.system),
            waited: about(done.waited),
            time,
            idle,
        };
        done.iter().enumerate().map(spell).collect()
    }

    /// What is learned in so many intervals.
    fn learn(
        &self,
        intervals: usize,
        idle: Option<f64>,
        noise: f64,
        random: &mut Random,
    ) -> BTreeMap<usize, f64> {
        let mut figures: BTreeMap<usize, Figure> = BTreeMap::new();
        for _ in 0..intervals {
            let told = shares(&self.spells(20, idle, noise, random)).unwrap_or_default();
            for (rank, share) in told {
                figures.entry(rank).or_default().see(share);
            }
        }
        let known = figures.iter().filter_map(|(rank, figure)| Some((*rank, figure.value()?)));
        even_out(&known.collect())
    }

    /// How long a round takes with the ranks placed anew.
    fn placed(&self, homes: &[usize]) -> f64 {
        let ranks = self.ranks.iter().zip(homes).map(|((work, _), home)| (*work, *home));
        let again = Program {
            nodes: self.nodes.clone(),
            ranks: ranks.collect(),
            waiting: Waiting::Yields,
            idle: self.idle,
        };
        again.round(&mut vec![Done::default(); self.ranks.len()])
    }

    /// The placement that is best by some figures.
    fn best(&self, figures: &[f64]) -> Vec<usize> {
        let (nodes, count) = (self.nodes.len(), self.ranks.len());
        let end = |homes: &[usize]| {
            let mut load = vec![(0.0, 0.0_f64); nodes];
            for (home, figure) in homes.iter().zip(figures) {
                load[*home] = (load[*home].0 + figure, load[*home].1.max(*figure));
            }
            let time = |((all, one), node): (&(f64, f64), &Node)| {
                (all / node.cores).max(one / node.cores.min(1.0)) / node.speed
            };
            load.iter().zip(&self.nodes).map(time).fold(0.0, f64::max)
        };
        let mut best: Option<(f64, Vec<usize>)> = None;
        for number in 0..nodes.pow(count as u32) {
            let homes: Vec<usize> =
                (0..count).map(|rank| number / nodes.pow(rank as u32) % nodes).collect();
            let time = end(&homes);
            if best.as_ref().is_none_or(|(least, _)| time < least - 1e-9) {
                best = Some((time, homes));
            }
        }
        best.map(|(_, homes)| homes).unwrap_or_default()
    }
}

const ONE: Node = Node { cores: 1.0, speed: 1.0 };
const WAYS: [Waiting; 3] = [Waiting::Sleeps, Waiting::Yields, Waiting::Spins];

/// Ranks of weights 1, 1, 2, 4, where they are.
fn weights(homes: [usize; 4], waiting: Waiting, idle: f64) -> Program {
    let ranks = [0.1, 0.1, 0.2, 0.4].into_iter().zip(homes).collect();
    Program { nodes: vec![ONE, ONE], ranks, waiting, idle }
}

/// What each rank of [`weights`] has to do, in what an average one has.
const SHARES: [f64; 4] = [0.5, 0.5, 1.0, 2.0];

#[test]
fn weights_of_one_one_two_and_four_are_found_however_ranks_wait() {
    let mut random = Random(7);
    for waiting in WAYS {
        for idle in [0.45, 0.6, 1.1] {
            for homes in [[0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]] {
                let program = weights(homes, waiting, idle);
                let found = program.learn(4, Some(idle), 0.03, &mut random);
                let told = || format!("{waiting:?} {idle} {homes:?}: {found:?}");
                for (rank, share) in SHARES.into_iter().enumerate() {
                    let known = found[&rank];
                    // By those who look for messages too little is found rather than too much.
                    let most = if waiting == Waiting::Sleeps { share } else { share.max(1.0) };
                    assert!(known > share.min(1.0) * 0.7, "{}", told());
                    assert!(known < most * 1.2, "{}", told());
                }
                if waiting == Waiting::Spins && idle > 1.0 {
                    continue;
                }
                // Enough for the best plan: the heaviest is put alone.
                let figures: Vec<f64> = found.values().copied().collect();
                let best = program.best(&figures);
                assert!(best[..3].iter().all(|home| *home != best[3]), "{}", told());
            }
        }
    }
}

#[test]
fn a_faster_machine_does_not_make_its_ranks_heavier() {
    let mut random = Random(8);
    for waiting in WAYS {
        let mut program = weights([0, 1, 1, 0], waiting, 0.6);
        program.nodes = vec![Node { cores: 1.0, speed: 2.5 }, Node { cores: 0.6, speed: 1.0 }];
        let found = program.learn(4, Some(0.6), 0.03, &mut random);
        for (rank, share) in SHARES.into_iter().enumerate() {
            let most = if waiting == Waiting::Sleeps { share } else { share.max(1.0) };
            let right = found[&rank] > share * 0.8 && found[&rank] < most * 1.2;
            assert!(right, "{waiting:?}: {found:?}");
        }
    }
}

#[test]
fn what_nobody_can_tell_is_not_told() {
    let spell = |process, machine, user, system, waited| Spell {
        process,
        machine,
        speed: 1.0,
        user,
        system,
        waited,
        time: 10.0,
        idle: Some(0.6),
    };
    // Each for itself: who has more of a CPU comes further.
    let alone = [spell(1, 0, 2.0, 0.0, 8.0), spell(2, 1, 4.0, 0.0, 6.0)];
    assert_eq!(shares(&alone), Err(Silence::Busy));
    // The same with a master, which only waits for them.
    let master = [alone[0], alone[1], spell(3, 2, 0.1, 0.0, 0.0)];
    assert_eq!(shares(&master), Err(Silence::Apart));
    // All stand at a gate: one sleeps, the others look for it.
    let gate = [spell(1, 0, 1.0, 1.6, 7.4), spell(2, 0, 1.0, 1.6, 7.4), spell(3, 0, 0.1, 0.1, 0.0)];
    assert_eq!(shares(&gate), Err(Silence::Idle));
    // They look without asking the kernel.
    let memory = [spell(1, 0, 5.0, 0.0, 5.0), spell(2, 0, 5.0, 0.0, 5.0)];
    assert_eq!(shares(&memory), Err(Silence::Busy));
    let unknown = gate.map(|spell| Spell { idle: None, ..spell });
    assert_eq!(shares(&unknown), Err(Silence::Blurred));
    let short = alone.map(|spell| Spell { time: 0.1, ..spell });
    assert_eq!(shares(&short), Err(Silence::Short));
    assert_eq!(shares::<i32>(&[]), Err(Silence::Short));
}

#[test]
fn a_plan_by_what_is_learned_is_no_worse_than_one_without() {
    let mut random = Random(9);
    let (mut gains, mut jobs) = (0.0, 0.0);
    for _ in 0..150 {
        let nodes: Vec<Node> = (0..2 + random.below(2))
            .map(|_| Node { cores: random.between(0.3, 1.5), speed: random.between(0.5, 2.0) })
            .collect();
        let heavy = random.below(2) == 0;
        let ranks = (0..4 + random.below(3))
            .map(|_| {
                let weight = if heavy { f64::from(1 << random.below(3)) } else { 1.0 };
                (weight * random.between(0.095, 0.105), random.below(nodes.len()))
            })
            .collect();
        let idle = random.between(0.45, 1.1);
        let program = Program { nodes, ranks, waiting: WAYS[random.below(3)], idle };
        // What waiting looks like is known, or is seen through what the one that waits most does besides.
        let blurred = program.spells(20, None, 0.0, &mut random);
        let least = blurred
            .iter()
            .filter(|spell| spell.system > 0.05)
            .map(|spell| spell.user / spell.system);
        let least = least.fold(f64::INFINITY, f64::min);
        let seen = match random.below(3) {
            0 if least.is_finite() => Some(least.min(idle * 3.0)),
            1 => Some(idle * random.between(0.8, 1.2)),
            _ => Some(idle),
        };
        let found = program.learn(5, seen, 0.05, &mut random);
        let count = program.ranks.len();
        let alike = program.placed(&program.best(&vec![1.0; count]));
        let figures: Vec<f64> =
            (0..count).map(|rank| found.get(&rank).copied().unwrap_or(1.0)).collect();
        let learned = program.placed(&program.best(&figures));
        let told =
            || format!("{learned} after {found:?}, {alike} without; {program:?} seen as {seen:?}");
        assert!(learned <= alike * if heavy { 1.35 } else { 1.05 }, "{}", told());
        if heavy {
            gains += alike / learned;
            jobs += 1.0;
        }
    }
    assert!(gains / jobs > 1.08, "by {}", gains / jobs);
}
