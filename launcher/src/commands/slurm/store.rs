//! The store of a job of Slurm's, and what the job is called there.

use crate::cli::StoreArguments;
use crate::commands::store::Store;
use crate::failure::Failure;
use crate::interrupts::Interrupts;

/// The store, if one is asked for: of a job of that name, else called as Slurm calls it.
///
/// # Errors
/// As [`Store::of`]; where this is no node of the allocation.
pub fn open(
    arguments: &StoreArguments,
    name: Option<&str>,
    interrupts: &Interrupts,
) -> Result<Option<Store>, Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = name.map(str::to_owned).or_else(|| variable("SLURM_JOB_NAME"));
    let name = name.unwrap_or_default();
    // Each task of an array is a job of its own.
    let name = match variable("SLURM_ARRAY_TASK_ID") {
        Some(task) => format!("{name}-{task}"),
        None => name,
    };
    if arguments.store.is_some() && std::env::var_os("SLURMD_NODENAME").is_none() {
        let cause = "this is none of its nodes: call it in a script of sbatch";
        return Err(Failure::of("keep a job of an allocation", cause));
    }
    let store = Store::of(arguments, &name, interrupts)?;
    let runs_again = variable("SLURM_RESTART_COUNT").is_some_and(|count| count != "0");
    Ok(if runs_again { store.map(Store::expecting_job) } else { store })
}
