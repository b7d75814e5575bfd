//! ckptd killed with SIGKILL at every step of a checkpoint.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use ckptd_tests::account::Account;
use ckptd_tests::job::Failure;

use super::worker::Bench;

/// The steps, as `CKPTD_FAULT` names them.
pub const STEPS: &[&str] = &["freeze", "quiesce", "snapshot", "resume", "write", "seal", "commit"];

const LIMIT: Duration = Duration::from_secs(20);

/// Dies at `step` of the second checkpoint; the one before must bring the job to its right end.
pub fn die_at(bench: &Bench, account: Account, step: &str) -> Result<(), Failure> {
    let name = format!("die-{step}-{}", account.name());
    let mut worker = bench.worker(&name, account)?;
    worker.run(&["--interval", "0"], 4, false)?;
    let first = worker.job.must_checkpoint()?;
    worker.job.kill()?;
    worker.job.set("CKPTD_FAULT", step);
    worker.job.restart(&[])?;
    worker.job.wait_until_up()?;
    worker.job.clear_environment();
    let (status, stdout, _) = worker.job.ckptd(&["checkpoint", &name])?;
    if status.success() {
        return Err(Failure(format!("checkpoint {stdout:?} was committed by a dead ckptd")));
    }
    // Waiting also expects that no process of the job is left over.
    let status = worker.job.wait(LIMIT)?;
    if status.signal() != Some(9) {
        return Err(Failure(format!("ckptd was not killed: {status}\n{}", worker.job.dump())));
    }
    worker.must_be_whole(&[first])?;
    worker.job.restart(&[])?;
    worker.job.wait_until_up()?;
    let from = worker.restored_from()?;
    if from != Some(first) {
        return Err(Failure(format!("restarted from {from:?} instead of {first}")));
    }
    let next = worker.job.must_checkpoint()?;
    if next <= first {
        return Err(Failure(format!("checkpoint {next} came after {first}")));
    }
    worker.finish()
}

/// Dies by an interval's checkpoint, as a job with nobody watching does.
pub fn die_unasked(bench: &Bench, account: Account) -> Result<(), Failure> {
    let mut worker = bench.worker(&format!("die-unasked-{}", account.name()), account)?;
    worker.run(&["--interval", "0"], 4, false)?;
    let first = worker.job.must_checkpoint()?;
    worker.job.kill()?;
    worker.job.set("CKPTD_FAULT", "write");
    worker.job.restart(&["--interval", "0.3"])?;
    worker.job.clear_environment();
    let status = worker.job.wait(LIMIT)?;
    if status.signal() != Some(9) {
        return Err(Failure(format!("ckptd was not killed: {status}\n{}", worker.job.dump())));
    }
    worker.job.restart(&["--interval", "0"])?;
    worker.job.wait_until_up()?;
    let from = worker.restored_from()?;
    if from != Some(first) {
        return Err(Failure(format!("restarted from {from:?} instead of {first}")));
    }
    worker.finish()
}
