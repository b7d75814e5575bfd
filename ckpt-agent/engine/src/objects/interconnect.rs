//! Devices of fast networks, by which processes reach other machines past the kernel. What such a device holds (queues, keys
//! of memory) is in the network card, and no call reads it back.

/// How their paths begin: verbs of InfiniBand and RoCE (drivers/infiniband/core), Omni-Path (hfi1), Slingshot (cxi).
const BEGINNINGS: [&str; 3] = ["/dev/infiniband/", "/dev/hfi1", "/dev/cxi"];

/// What to do about a path that is one; `None`: it is none.
#[must_use]
pub fn way_out(path: &str) -> Option<&'static str> {
    BEGINNINGS.iter().any(|beginning| path.starts_with(beginning)).then_some(
        "it is a network's own device: have MPI use TCP, as mpirun does on a cluster without settings of yours \
         (OMPI_MCA_pml=ob1, UCX_TLS=tcp,self, FI_PROVIDER=tcp)",
    )
}

#[cfg(test)]
mod tests {
    use super::way_out;

    #[test]
    fn devices_of_networks_are_known_by_their_paths() {
        for path in ["/dev/infiniband/uverbs0", "/dev/hfi1_0", "/dev/cxi0"] {
            assert!(way_out(path).is_some_and(|text| text.contains("UCX_TLS=tcp,self")), "{path}");
        }
        for path in ["/dev/null", "/dev/shm/x", "/home/infiniband/uverbs0"] {
            assert_eq!(way_out(path), None, "{path}");
        }
    }
}
