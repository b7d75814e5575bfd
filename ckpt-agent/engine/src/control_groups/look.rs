//! Which groups a checkpoint names.

use super::{ControlGroup, Groups, below, of};

/// The groups of a process that are not those of the job.
pub fn apart(pid: i32, of_job: &Groups) -> Vec<ControlGroup> {
    let groups = of(&pid.to_string()).into_iter();
    groups
        .filter(|(hierarchy, path)| of_job.get(hierarchy) != Some(path))
        .map(|(hierarchy, path)| {
            let within = of_job.get(&hierarchy).and_then(|job| below(&path, job));
            let (path, within) = match within {
                Some(rest) => (rest.to_owned(), true),
                None => (path, false),
            };
            ControlGroup { hierarchy, path, within }
        })
        .collect()
}
