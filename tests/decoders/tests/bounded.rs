//! Every decoder gets what is valid and then thousands of things that are not.
//!
//! `CKPTD_SEED=N` repeats a run, `CKPTD_SECONDS=N` is the time for each decoder.

use decoders::mutate::mutated;
use decoders::random::Random;
use decoders::{TARGETS, Target};
use peak_alloc::PeakAlloc;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes that a decoder may take whatever it is given: buffers, a decompressor's window, folders' names.
const BASE: usize = 12 << 20;
/// Bytes that it may take for each byte that it is given: one JSON value takes 32 for a byte.
const FACTOR: usize = 400;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What is wrong with how a decoder takes this.
fn fault(target: &Target, bytes: &[u8]) -> Option<String> {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let read = catch_unwind(AssertUnwindSafe(|| (target.read)(bytes)));
    let taken = MEMORY.peak_usage().saturating_sub(before);
    match read {
        Err(_) => Some("panics".to_owned()),
        Ok(()) if taken > BASE + FACTOR * bytes.len() => {
            Some(format!("takes {taken} bytes of memory"))
        }
        Ok(()) => None,
    }
}

/// One test: memory is counted for the whole process.
#[test]
fn decoders_refuse_what_is_wrong_and_take_no_more_memory_than_it_is_worth() {
    let seed = number("CKPTD_SEED", 1);
    let time = Duration::from_secs(number("CKPTD_SECONDS", 2));
    let mut faults = Vec::new();
    for target in &TARGETS {
        let mut random = Random::new(seed);
        let seeds = (target.seeds)(&mut random);
        assert!(seeds.len() > 1, "{} has nothing to begin from", target.name);
        let begun = Instant::now();
        let mut count = 0;
        let mut inputs = seeds.iter().cloned();
        while begun.elapsed() < time {
            let bytes = inputs.next().unwrap_or_else(|| {
                let (one, other) = (random.below(seeds.len()), random.below(seeds.len()));
                mutated(&seeds[one], &seeds[other], &mut random)
            });
            count += 1;
            if let Some(fault) = fault(target, &bytes) {
                let text = String::from_utf8_lossy(&bytes).chars().take(2000).collect::<String>();
                faults.push(format!("{} {fault} at input {count}: {text:?}", target.name));
                break;
            }
        }
        println!("{}: {} seeds, {count} inputs", target.name, seeds.len());
    }
    assert!(faults.is_empty(), "seed {seed}:\n{}", faults.join("\n"));
}
