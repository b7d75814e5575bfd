//! The settings by which ranks can be separated.

use super::version::{release, release_text};
use super::{Found, RunTime, Sharing, own};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// The first MPICH that does not hang in MPI_Finalize over UCX's TCP.
const MPICH_REPAIRED: (u32, u32) = (4, 2);

/// Where the processes of a job may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// They stay on one machine.
    Machine {
        /// Whether it has devices of networks with which ranks need no kernel.
        has_devices: bool,
    },
    /// Each may come to be on another machine.
    Cluster,
}

/// Where drivers put the devices of InfiniBand and RoCE, Omni-Path and Slingshot.
const DEVICES: [&str; 3] = ["/dev/infiniband", "/dev/hfi1_0", "/dev/cxi0"];

impl Reach {
    /// This machine.
    pub fn this_machine() -> Self {
        let has_devices = DEVICES.iter().any(|device| Path::new(device).exists());
        Self::Machine { has_devices }
    }
}

/// Adds the settings to the environment of a launcher of MPI jobs, but those that the user has set. Where ranks of a node share
/// memory, these are such that they have no device of a network's open, if there may be one. What the user should know about
/// them.
pub fn separate(
    found: &Found,
    reach: Reach,
    sharing: Sharing,
    command: &[OsString],
    environment: &mut Vec<(OsString, OsString)>,
) -> Vec<String> {
    let profile = found.run_time.profile();
    let is_alone = reach != Reach::Cluster;
    if sharing == Sharing::Nodes || (is_alone && !profile.alone) {
        if reach != (Reach::Machine { has_devices: false }) {
            let settings = || profile.without_devices.iter().copied();
            let of_user = own::other_than(found.run_time, settings(), command, environment);
            set(settings().map(|(name, value)| (name, value.into())), environment);
            // Whatever memory they have in common is meant.
            return own::with_devices(of_user).into_iter().collect();
        }
        return Vec::new();
    }
    let of_user = own::other_than(found.run_time, profile.settings(sharing), command, environment);
    let settings = profile.settings(sharing);
    let changed = set(settings.map(|(name, value)| (name, value.into())), environment);
    own::warning(&of_user).into_iter().chain(caution(found).filter(|_| changed)).collect()
}

/// The same for what is no launcher but may call one, of whichever run time, on a cluster.
/// What the user should know about it.
pub fn separate_within(environment: &mut Vec<(OsString, OsString)>) -> Option<String> {
    let mut of_user = BTreeMap::new();
    for run_time in RunTime::ALL {
        let separable = || run_time.profile().separable.iter().copied();
        of_user.extend(own::other_than(run_time, separable(), &[], environment));
        set(separable().map(|(name, value)| (name, value.into())), environment);
    }
    own::warning(&of_user)
}

/// Adds variables that are not set yet; whether there were any.
pub fn set<'n>(
    settings: impl Iterator<Item = (&'n str, OsString)>,
    environment: &mut Vec<(OsString, OsString)>,
) -> bool {
    let before = environment.len();
    for (name, value) in settings {
        if !environment.iter().any(|(set, _)| set == name) {
            environment.push((name.into(), value));
        }
    }
    environment.len() != before
}

/// What users of this release should know.
pub fn caution(found: &Found) -> Option<String> {
    match found.run_time {
        RunTime::Mpich => may_hang(&found.answer),
        RunTime::OpenMpi4 | RunTime::OpenMpi5 | RunTime::IntelMpi => None,
    }
}

/// What users of this MPICH should know, by its answer to --version. Its MPI_Finalize flushes all connections, then waits for
/// the process manager and answers nobody any more, which UCX's TCP needs to flush since 1.12: a rank that has answered
/// before, from within another call, and flushes after that waits for ever. MPICH 4.2 waits first.
fn may_hang(answer: &str) -> Option<String> {
    let version = release_text(answer)?;
    (release(version)? < MPICH_REPAIRED && answer.contains("ch4:ucx")).then(|| {
        format!(
            "MPICH {version} may hang in MPI_Finalize over TCP, with ckptd or without, if a rank comes there while \
             others still take messages: let ranks rest for a moment after a last MPI_Barrier, or use MPICH 4.2"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(run_time: RunTime) -> Found {
        Found { run_time, answer: String::new() }
    }

    fn settings(
        run_time: RunTime,
        reach: Reach,
        own: &[(&str, &str)],
    ) -> Vec<(OsString, OsString)> {
        sharing_settings(run_time, reach, Sharing::Apart, own)
    }

    fn sharing_settings(
        run_time: RunTime,
        reach: Reach,
        sharing: Sharing,
        own: &[(&str, &str)],
    ) -> Vec<(OsString, OsString)> {
        let mut environment = own.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let said = separate(&found(run_time), reach, sharing, &[], &mut environment);
        assert_eq!(!said.is_empty(), !own.is_empty());
        environment
    }

    #[test]
    fn ranks_of_a_group_have_shared_memory() {
        let groups = Sharing::Groups(std::num::NonZeroU32::MIN);
        let of = |run_time| sharing_settings(run_time, Reach::Cluster, groups, &[]);
        assert_eq!(of(RunTime::OpenMpi4)[1], ("OMPI_MCA_btl".into(), "self,vader,tcp".into()));
        assert_eq!(of(RunTime::OpenMpi5)[1], ("OMPI_MCA_btl".into(), "self,sm,tcp".into()));
        let mpich = [("UCX_TLS", "tcp,self"), ("FI_PROVIDER", "tcp"), ("MPIR_CVAR_NOLOCAL", "0")];
        assert_eq!(of(RunTime::Mpich), mpich.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(of(RunTime::IntelMpi), settings(RunTime::IntelMpi, Reach::Cluster, &[]));
        let own = [("OMPI_MCA_btl", "self,tcp")];
        let own = sharing_settings(RunTime::OpenMpi4, Reach::Cluster, groups, &own);
        assert_eq!((own.len(), own[0].1.as_os_str()), (7, "self,tcp".as_ref()));
    }

    #[test]
    fn ranks_with_shared_memory_have_no_devices() {
        let nodes = sharing_settings(RunTime::OpenMpi4, Reach::Cluster, Sharing::Nodes, &[]);
        assert!(nodes.contains(&("OMPI_MCA_pml".into(), "ob1".into())));
        assert!(nodes.iter().all(|(_, value)| value != "self,tcp"));
        let alone = |has_devices| {
            settings(RunTime::Mpich, Reach::Machine { has_devices }, &[]).into_iter().next()
        };
        assert_eq!(alone(false), None);
        assert_eq!(alone(true), Some(("UCX_TLS".into(), "tcp,self,sm".into())));
    }

    #[test]
    fn launchers_are_told_what_separates_their_ranks() {
        let of = |run_time| settings(run_time, Reach::Cluster, &[]);
        assert_eq!(of(RunTime::OpenMpi4).len(), 7);
        assert_eq!(of(RunTime::OpenMpi5).len(), 7);
        assert_eq!(of(RunTime::Mpich)[0], ("UCX_TLS".into(), "tcp,self".into()));
        assert_eq!(of(RunTime::IntelMpi)[0], ("FI_PROVIDER".into(), "tcp".into()));
        let own = [("OMPI_MCA_btl", "vader,self")];
        let own = settings(RunTime::OpenMpi4, Reach::Cluster, &own);
        assert_eq!((own.len(), own[0].1.as_os_str()), (7, "vader,self".as_ref()));
    }

    #[test]
    fn on_one_machine_only_open_mpi_does_without_shared_memory() {
        let alone = Reach::Machine { has_devices: false };
        let of = |run_time| settings(run_time, alone, &[]).len();
        assert_eq!((of(RunTime::OpenMpi4), of(RunTime::OpenMpi5)), (7, 7));
        assert_eq!((of(RunTime::Mpich), of(RunTime::IntelMpi)), (0, 0));
    }

    #[test]
    fn mpich_that_may_hang_is_known() {
        let text = |version: &str, device: &str| {
            format!("HYDRA build details:\n    Version:    {version}\n    Options: '{device}'\n")
        };
        for version in ["4.0.2", "4.1.3", "3.4.3", "4.1rc2"] {
            let told = may_hang(&text(version, "--with-device=ch4:ucx"));
            assert!(told.is_some_and(|line| line.starts_with(&format!("MPICH {version} "))));
            assert_eq!(may_hang(&text(version, "--with-device=ch4:ofi")), None);
        }
        for version in ["4.2.0", "4.3.1", "5.0", "unknown"] {
            assert_eq!(may_hang(&text(version, "--with-device=ch4:ucx")), None, "{version}");
        }
    }
}
