//! Brings an instance back in several parts on one machine, each in an init of its own, with
//! carriers between the relays' ends as agents would have them.

mod carrier;
#[path = "../../../../tests/harness.rs"]
mod harness;
mod program;
mod rig;

use std::process::ExitCode;

use rig::{Image, Instance, Outcome, Rig};

type Case = (&'static str, fn() -> Outcome);

const CASES: &[Case] = &[
    ("parent_and_child_over_a_pipe", || family("pipe")),
    ("parent_and_child_over_a_socket", || family("socket")),
    ("parent_and_child_over_a_terminal", || family("terminal")),
    ("signals_between_parent_and_child", || family("signals")),
    ("child_killed_by_a_signal", || family("killed")),
    ("child_killed_outright", || family("shot")),
    ("child_interrupted_from_its_terminal", || family("interrupt")),
    ("parent_dies_first", || apart("orphan", 3)),
    ("everything", || family("all")),
    ("remote_shell", remote_shell),
    ("pipeline_of_a_shell", pipeline),
    ("reading_copies_no_memory", reading_copies_no_memory),
    ("forked_memory_stays_common", forked_memory_stays_common),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let name = arguments.next().unwrap_or_default();
    if name == ckpt_engine::INIT_NAME {
        return ExitCode::from(ckpt_engine::run_init());
    }
    let arguments: Vec<String> = arguments.collect();
    if let [flag, kind] = arguments.as_slice() {
        if flag == program::FLAG {
            return program::run(kind);
        }
    }
    let asked = harness::Asked::new(&arguments);
    if asked.lists(CASES.iter().map(|(name, _)| *name)) {
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, case) in CASES.iter().filter(|(name, _)| asked.wants(name)) {
        match case() {
            Ok(()) => println!("test {name} ... ok"),
            Err(text) => {
                println!("test {name} ... FAILED: {text}");
                failed += 1;
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn family(kind: &str) -> Outcome {
    apart(kind, 2)
}

/// Runs a program of some processes, takes them apart, lets them work, brings all parts back once
/// more, and lets them finish.
fn apart(kind: &str, processes: usize) -> Outcome {
    let mut rig = Rig::new()?;
    let job = vec![rig.launch_program(kind)?];
    rig.let_work(&job)?;
    let image = rig.dump(job)?.remove(0);
    let units = image.units()?;
    if units.len() != processes {
        return Err(format!("it cannot be taken apart: {units:?}"));
    }
    let parts = generations(&mut rig, &image)?;
    let (status, said) = rig.finish(parts)?;
    if said.concat() != "ok\n" || status != 3 {
        return Err(format!("the job ends with {status} and says {said:?}"));
    }
    Ok(())
}

fn generations(rig: &mut Rig, image: &Image) -> Result<Vec<Instance>, String> {
    let parts = rig.split(image)?;
    rig.let_work(&parts)?;
    let images = rig.dump(parts)?;
    let mut parts: Vec<Instance> = Vec::new();
    for image in &images {
        parts.push(rig.restore(image, None)?);
    }
    rig.let_work(&parts)?;
    Ok(parts)
}

/// A job that writes nothing while it is read costs no memory of its size.
fn reading_copies_no_memory() -> Outcome {
    let mut rig = Rig::new()?;
    let job = rig.launch_program("large")?;
    rig.await_word(&job, "filled\n")?;
    let image = rig.dump(vec![job])?.remove(0);
    if image.copied > program::LARGE / 1024 / 8 {
        return Err(format!("{} KiB were copied", image.copied));
    }
    let job = rig.restore(&image, None)?;
    let (status, said) = rig.finish(vec![job])?;
    if said.concat() != "ok\n" || status != 3 {
        return Err(format!("the job ends with {status} and says {said:?}"));
    }
    Ok(())
}

/// What processes have in common since a fork is stored once, and is in memory once after a restart.
fn forked_memory_stays_common() -> Outcome {
    let mut rig = Rig::new()?;
    let mut job = rig.launch_program("forked")?;
    rig.await_word(&job, "filled\n")?;
    for _ in 0..2 {
        let image = rig.dump(vec![job])?.remove(0);
        let most = program::LARGE / 1024 * 3 / 2;
        // Stored is what is the same by pieces of 64 pages.
        if image.stored > program::LARGE / 1024 * 2 {
            return Err(format!("{} KiB were stored", image.stored));
        }
        job = rig.restore(&image, None)?;
        // By what the restore has taken, all clocks are behind.
        let ahead = rig.clocks(&job)?;
        if ahead >= 0 {
            return Err(format!("the clocks have run on: {ahead} ns"));
        }
        let all = rig.memory(&job)?;
        if all > most {
            return Err(format!("after the restart the job has {all} KiB"));
        }
    }
    let (status, said) = rig.finish(vec![job])?;
    if said.concat() != "ok\n" || status != 3 {
        return Err(format!("the job ends with {status} and says {said:?}"));
    }
    Ok(())
}

/// Two ends of a pipe and their shell, with short-lived children of their own.
fn pipeline() -> Outcome {
    let script = "(i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); sleep 0.004; done; exit 5) | \
         (n=0; while read x; do [ $x = $n ] || echo $x after $n; n=$((n+1)); done; echo $n; exit 6); \
         echo status $?; exit 9";
    let mut rig = Rig::new()?;
    let job = vec![rig.launch(&["/bin/sh", "-c", script])?];
    rig.let_work(&job)?;
    let image = rig.dump(job)?.remove(0);
    let units = image.units()?;
    if units.len() < 3 {
        return Err(format!("it cannot be taken apart: {units:?}"));
    }
    let parts = generations(&mut rig, &image)?;
    let (status, mut said) = rig.finish(parts)?;
    said.sort_unstable();
    if said.concat() != "200\nstatus 6\n" || status != 9 {
        return Err(format!("the job ends with {status} and says {said:?}"));
    }
    Ok(())
}

/// A process that is the agent's from the start: what it is told comes back from elsewhere.
fn remote_shell() -> Outcome {
    let mut rig = Rig::new()?;
    let socket = rig.listen()?;
    let job = rig.launch_program(&format!("shell:{}", socket.display()))?;
    let mut job = vec![rig.accept_shell(job)?];
    rig.let_work(&job)?;
    for _ in 0..2 {
        let image = rig.dump(job)?.remove(0);
        job = vec![rig.restore(&image, None)?];
        rig.let_work(&job)?;
    }
    let (status, said) = rig.finish(job)?;
    if said.concat() != "ok\n" || status != 3 {
        return Err(format!("the job ends with {status} and says {said:?}"));
    }
    Ok(())
}
