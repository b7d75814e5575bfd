//! What Slurm's environment tells of where a command is called.

use crate::failure::Failure;

/// How slurmstepd, the parent of a task, is titled where that task is the script of sbatch.
const TITLE_OF_BATCH: &str = ".batch]";

/// What a user should know who runs a launcher of MPI jobs by `ckptd run`: in an allocation of several nodes its ranks come to be
/// on nodes that no checkpoint has. `nodes`: SLURM_JOB_NUM_NODES.
pub fn caution_of_nodes(nodes: Option<&str>) -> Option<String> {
    let nodes = nodes?.parse::<u32>().ok().filter(|nodes| *nodes > 1)?;
    Some(format!(
        "warning: this is an allocation of {nodes} nodes, and a checkpoint by 'ckptd run' has this one's processes alone: \
         'ckptd slurm run' keeps the whole job"
    ))
}

/// Refuses to be called in each of several tasks of a step.
pub(super) fn refuse_several() -> Result<(), Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let title = || title_of_parent(variable("SLURM_TASK_PID")?.parse().ok()?);
    match tasks(&variable, title) {
        None => Ok(()),
        Some(tasks) => Err(Failure::Usage(format!(
            "wrong usage: srun would run the job once for each of its {tasks} tasks: call 'ckptd slurm run' once, without \
             srun"
        ))),
    }
}

/// The tasks of the step, where they are several that are all called. SLURM_STEP_NUM_TASKS is srun's; the script of sbatch has a
/// SLURM_PROCID and SLURM_NTASKS, too, and whatever sbatch was called with, such as in a shell that srun has started. The title
/// of the task's slurmstepd tells that apart; where it can't be read, the environment is believed.
fn tasks(
    variable: &dyn Fn(&str) -> Option<String>,
    title: impl FnOnce() -> Option<String>,
) -> Option<u32> {
    let task: u32 = variable("SLURM_PROCID")?.parse().ok()?;
    let tasks = variable("SLURM_STEP_NUM_TASKS")?.parse::<u32>().ok().filter(|tasks| *tasks > 1)?;
    // The terminal of 'srun --pty' is the first task's alone: it is where a user calls commands.
    let is_terminals = task == 0 && variable("SLURM_PTY_PORT").is_some();
    let is_batch = || title().is_some_and(|title| title.trim_end().ends_with(TITLE_OF_BATCH));
    (!is_terminals && !is_batch()).then_some(tasks)
}

/// The title of the process that has started this one.
fn title_of_parent(pid: u32) -> Option<String> {
    let parent = ckpt_engine::proc::parent(i32::try_from(pid).ok()?)?;
    let title = std::fs::read(format!("/proc/{parent}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&title).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)], title: Option<&str>) -> Option<u32> {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        tasks(&variable, || title.map(str::to_owned))
    }

    #[test]
    fn allocations_of_several_nodes_are_told_of() {
        let said = caution_of_nodes(Some("3")).unwrap();
        assert!(said.contains("an allocation of 3 nodes") && said.contains("'ckptd slurm run'"));
        for one in [None, Some("1"), Some("0"), Some(""), Some("many")] {
            assert_eq!(caution_of_nodes(one), None, "{one:?}");
        }
    }

    #[test]
    fn tasks_of_a_step_are_several() {
        let step = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(of(&step, Some("slurmstepd: [7.0]")), Some(4));
        assert_eq!(of(&step, None), Some(4));
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")], None), None);
    }

    #[test]
    fn the_script_of_sbatch_is_one() {
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_NPROCS", "4")];
        assert_eq!(of(&batch, None), None);
        let within = [&batch[..], &[("SLURM_STEP_NUM_TASKS", "4")]].concat();
        assert_eq!(of(&within, Some("slurmstepd: [8.batch]")), None, "submitted in a step");
        assert_eq!(of(&[("SLURM_STEP_NUM_TASKS", "4")], None), None, "no task");
    }

    #[test]
    fn the_terminal_of_a_step_is_its_first_tasks() {
        let task = |rank| {
            let set =
                [("SLURM_PROCID", rank), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PTY_PORT", "1")];
            of(&set, Some("slurmstepd: [7.0]"))
        };
        assert_eq!((task("0"), task("1")), (None, Some(4)));
    }

    #[test]
    fn a_parent_has_a_title() {
        let parent = title_of_parent(std::process::id());
        let expected =
            std::fs::read(format!("/proc/{}/cmdline", std::os::unix::process::parent_id()));
        let expected =
            String::from_utf8_lossy(&expected.unwrap()).trim_end_matches('\0').to_owned();
        assert_eq!(parent, Some(expected));
        assert_eq!(title_of_parent(u32::MAX), None);
    }
}
