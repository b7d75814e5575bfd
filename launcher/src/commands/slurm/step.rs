//! What Slurm's environment tells of where a command is called.

/// What a user should know who runs a launcher of MPI jobs by `ckptd run`: in an allocation of several nodes its ranks come to be
/// on nodes that no checkpoint has. `nodes`: SLURM_JOB_NUM_NODES.
pub fn caution_of_nodes(nodes: Option<&str>) -> Option<String> {
    let nodes = nodes?.parse::<u32>().ok().filter(|nodes| *nodes > 1)?;
    Some(format!(
        "warning: this is an allocation of {nodes} nodes, and a checkpoint by 'ckptd run' has this one's processes alone: \
         'ckptd slurm run' keeps the whole job"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_of_several_nodes_are_told_of() {
        let said = caution_of_nodes(Some("3")).unwrap();
        assert!(said.contains("an allocation of 3 nodes") && said.contains("'ckptd slurm run'"));
        for one in [None, Some("1"), Some("0"), Some(""), Some("many")] {
            assert_eq!(caution_of_nodes(one), None, "{one:?}");
        }
    }
}
