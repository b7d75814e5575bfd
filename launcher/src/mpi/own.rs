//! Settings of a user's own for what lies between ranks, with which they can't be separated or not be checkpointed.

use super::{RunTime, Setting};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

/// Settings that choose what lies between ranks.
const TRANSPORTS: [&str; 5] =
    ["OMPI_MCA_pml", "OMPI_MCA_btl", "UCX_TLS", "MPIR_CVAR_NOLOCAL", "FI_PROVIDER"];
/// Those of them that choose the network.
const OF_NETWORKS: [&str; 3] = ["OMPI_MCA_pml", "FI_PROVIDER", PROVIDER_OF_INTEL.0];
/// What goes before FI_PROVIDER with Intel MPI.
const PROVIDER_OF_INTEL: Setting = ("I_MPI_OFI_PROVIDER", "tcp");
/// How Open MPI's variables begin; its options leave that out.
const OF_OPEN_MPI: &str = "OMPI_MCA_";

/// Settings among `told`, of which those about what lies between ranks are other by the user's environment or options of the
/// launcher: his, by name.
pub fn other_than(
    run_time: RunTime,
    told: impl Iterator<Item = Setting>,
    command: &[OsString],
    environment: &[(OsString, OsString)],
) -> BTreeMap<String, String> {
    let by_option = options(command);
    let extra = (run_time == RunTime::IntelMpi).then_some(PROVIDER_OF_INTEL);
    let told = told.filter(|(name, _)| TRANSPORTS.contains(name)).chain(extra);
    let own = told.filter_map(|(name, value)| {
        let by_variable = || environment.iter().find(|(set, _)| set == name);
        let own = match name.strip_prefix(OF_OPEN_MPI).and_then(|short| by_option.get(short)) {
            Some(own) => own.clone(),
            None => by_variable()?.1.to_string_lossy().into_owned(),
        };
        (!are_alike(&own, value)).then(|| (name.to_owned(), own))
    });
    own.collect()
}

/// Whether two settings choose the same: lists in any order; a provider of libfabric with what it is layered by.
fn are_alike(one: &str, other: &str) -> bool {
    let parts = |text: &str| -> BTreeSet<String> {
        let parts = text.split([',', ';']).filter(|part| *part != "ofi_rxm");
        parts.map(str::to_owned).collect()
    };
    parts(one) == parts(other)
}

/// Them, as a shell sets them; `None`: there are none.
pub fn listed(own: &BTreeMap<String, String>) -> Option<String> {
    let listed: Vec<String> = own.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (!listed.is_empty()).then(|| listed.join(", "))
}

/// What the user should know about them.
pub fn warning(own: &BTreeMap<String, String>) -> Option<String> {
    let listed = listed(own)?;
    Some(format!(
        "your {listed}: ranks that have shared memory or a network's device between them move together, or can't be \
         checkpointed ('ckptd doctor --mpi' tells what ckptd would set)"
    ))
}

/// The same where ranks may have memory in common: about those by which they may have a network's device open.
pub fn with_devices(mut own: BTreeMap<String, String>) -> Option<String> {
    own.retain(|name, _| OF_NETWORKS.contains(&name.as_str()));
    let listed = listed(&own)?;
    Some(format!("your {listed}: ranks that have a network's device open can't be checkpointed"))
}

/// Open MPI's options `--mca NAME VALUE`, before the program that is run or behind it: what is meant for the program itself is
/// not told apart, and only warned about.
fn options(command: &[OsString]) -> BTreeMap<String, String> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let triples = words.windows(3).filter(|words| matches!(words[0].as_ref(), "--mca" | "-mca"));
    triples.map(|words| (words[1].clone().into_owned(), words[2].clone().into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Sharing;
    use super::*;

    fn own(run_time: RunTime, command: &[&str], set: &[(&str, &str)]) -> Vec<String> {
        let told = run_time.profile().settings(Sharing::Apart);
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let environment: Vec<_> =
            set.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let own = other_than(run_time, told, &command, &environment);
        assert_eq!(warning(&own).is_some(), !own.is_empty());
        own.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn what_the_user_has_set_otherwise_is_known() {
        let plain = ["mpirun", "-n", "2", "sh"];
        for run_time in RunTime::ALL {
            assert!(own(run_time, &plain, &[]).is_empty());
        }
        let set = [("OMPI_MCA_btl", "self,vader"), ("OMPI_MCA_pml", "ob1"), ("UCX_TLS", "rc")];
        assert_eq!(own(RunTime::OpenMpi4, &plain, &set), ["OMPI_MCA_btl=self,vader"]);
        assert_eq!(own(RunTime::Mpich, &plain, &set), ["UCX_TLS=rc"]);
        let options = ["mpirun", "--mca", "pml", "ucx", "-mca", "btl", "self,tcp", "sh"];
        assert_eq!(own(RunTime::OpenMpi5, &options, &set), ["OMPI_MCA_pml=ucx"]);
        let alike = ["mpirun", "--mca", "btl", "tcp,self"];
        assert!(own(RunTime::OpenMpi4, &alike, &[("FI_PROVIDER", "tcp;ofi_rxm")]).is_empty());
        assert!(own(RunTime::Mpich, &plain, &[("FI_PROVIDER", "tcp;ofi_rxm")]).is_empty());
        let listed =
            |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert!(with_devices(listed("OMPI_MCA_pml", "ucx")).is_some());
        assert_eq!(with_devices(listed("OMPI_MCA_btl", "self,vader")), None);
        let intel = [("I_MPI_OFI_PROVIDER", "psm3"), ("FI_PROVIDER", "tcp")];
        assert_eq!(own(RunTime::IntelMpi, &plain, &intel), ["I_MPI_OFI_PROVIDER=psm3"]);
    }
}
