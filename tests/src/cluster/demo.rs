//! The demonstration: three nodes on one machine, one of them killed in front of the user's eyes.

use std::time::Duration;

use super::ckptd::Ckptd;
use super::suite::Stage;
use crate::job::Failure;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the job may take.
const JOB_LIMIT: Duration = Duration::from_secs(180);
const QUEENS: &str = "14";
const ANSWER: &str = "N=14: 365596 solutions";
/// The node that is killed.
const LOST: usize = 3;

fn say(text: &str) {
    println!("\n\u{1b}[1m{text}\u{1b}[0m");
}

fn show(text: &str) {
    for line in text.trim_end().lines() {
        println!("   {line}");
    }
}

/// Shows it.
///
/// # Errors
/// Where anything is not as it should be.
pub fn run(stage: &Stage) -> Result<(), Failure> {
    say(
        "3. Three nodes on this machine, and a fourth one for the coordinator, made of namespaces:",
    );
    println!("   each has its own network address, host name, processes, /tmp and home.");
    let ckptd = stage.cluster(3)?;
    show(&listing(&ckptd, &["nodes"])?);

    say("4. Six ranks of unmodified Open MPI count the ways to place 14 queens. On node1:");
    let program = ["mpirun.openmpi", "-np", "6", "--mca", "mpi_yield_when_idle", "1", "nqueens"];
    let command = [&program[..], &[QUEENS, "--ballast", "16", "--chat", "100", "--least", "15"]];
    let command = command.concat();
    println!("   ckptd run --interval 2 --name queens -- {}", command.join(" "));
    let mut job = ckptd.run(1, "queens", &["--interval", "2"], &command)?;
    job.wait_for_output("rank 5 of 6 on node3", LIMIT)?;
    show(&job.output());
    job.wait_for_checkpoint(2, LIMIT)?;
    println!("   Two checkpoints are committed, every image on two nodes:");
    show(&listing(&ckptd, &["status", "queens"])?);

    say("5. node3 dies: all of its processes are killed at once, its link with them.");
    ckptd.kill_node(LOST)?;
    job.wait_for_rollback(1, LIMIT)?;
    println!("   Its daemon and its two ranks run on the two other nodes now, rewired:");
    show(&listing(&ckptd, &["status", "queens"])?);
    let told: Vec<String> =
        job.errors().lines().filter(|l| l.contains("goes on")).map(str::to_owned).collect();
    println!("   What the user was told:");
    show(&told.join("\n"));

    say("6. The verdict.");
    job.must_end_with(ANSWER, JOB_LIMIT)?;
    println!("   {ANSWER}: right. The ballast was verified. mpirun's exit status: 0.");
    Ok(())
}

fn listing(ckptd: &Ckptd, arguments: &[&str]) -> Result<String, Failure> {
    let output = ckptd.ckptd(1, arguments)?;
    if output.status == 0 {
        return Ok(output.stdout);
    }
    Err(Failure(format!("ckptd {}: {}", arguments.join(" "), output.stderr)))
}
