//! What is known of each run time.

use super::{RunTime, Setting, Sharing};

/// What is known of a run time.
#[derive(Debug)]
pub struct Profile {
    /// What it is called.
    pub name: &'static str,
    /// With these its ranks have no memory in common, where that can be had, all connections are made at the start, and no
    /// rank is bound to a core that it would share with another after a move.
    pub separable: &'static [Setting],
    /// With these its ranks have whatever memory in common it likes, but no device of a network's, which no checkpoint can keep.
    pub without_devices: &'static [Setting],
    /// Those of them that are other where ranks have memory in common within a group.
    pub in_groups: &'static [Setting],
    /// Whether that is set where all ranks stay on one machine, too.
    pub alone: bool,
    /// In an allocation of Slurm: it starts no daemons by srun, behind ckptd's back.
    pub daemons_not_by_slurm: &'static [Setting],
    /// In an allocation of Slurm: it takes no hosts from there.
    pub hosts_not_by_slurm: &'static [Setting],
    /// Options and variables by which a user names the hosts.
    pub host_options: &'static [&'static str],
    /// As above.
    pub host_variables: &'static [&'static str],
    /// What its ranks use between each other with these settings.
    pub transport: &'static str,
    /// How they move then.
    pub moves: &'static str,
    /// What the settings cost.
    pub cost: &'static str,
    /// Which releases are tested.
    pub tested: &'static str,
}

/// Windows go by the network otherwise.
const ONE_SIDED_BY_NO_DEVICE: Setting = ("OMPI_MCA_osc", "^ucx");
/// Libraries that come with drivers of networks, and open their devices. Where they are not, nobody misses them.
const COLLECTIVE_BY_NO_DEVICE: Setting = ("OMPI_MCA_coll", "^hcoll,ucc");
const OPEN_MPI_WITHOUT_DEVICES: &[Setting] = &[
    ("OMPI_MCA_pml", "ob1"),
    ("OMPI_MCA_btl", "^openib,uct,ofi,usnic"),
    ONE_SIDED_BY_NO_DEVICE,
    COLLECTIVE_BY_NO_DEVICE,
];

const OPEN_MPI_4: Profile = Profile {
    name: "Open MPI",
    separable: &[
        // Without it, UCX or PSM2 goes before any btl where there is a device for them.
        ("OMPI_MCA_pml", "ob1"),
        ("OMPI_MCA_btl", "self,tcp"),
        ONE_SIDED_BY_NO_DEVICE,
        COLLECTIVE_BY_NO_DEVICE,
        ("PMIX_MCA_gds", "hash"),
        ("OMPI_MCA_mpi_preconnect_mpi", "1"),
        ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ],
    without_devices: OPEN_MPI_WITHOUT_DEVICES,
    in_groups: &[("OMPI_MCA_btl", "self,vader,tcp")],
    alone: true,
    daemons_not_by_slurm: &[("OMPI_MCA_plm", "rsh")],
    hosts_not_by_slurm: &[("OMPI_MCA_ras", "^slurm")],
    host_options: &["host", "H", "hostfile", "machinefile", "default-hostfile"],
    host_variables: &["OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_default_dash_host"],
    transport: "TCP (ob1, btl self,tcp)",
    moves: ONE_BY_ONE,
    cost: COST,
    tested: "4.1.4",
};

const OPEN_MPI_5: Profile = Profile {
    name: "Open MPI",
    separable: &[
        // Without it, libraries for networks that are not there are asked first.
        ("OMPI_MCA_pml", "ob1"),
        ("OMPI_MCA_btl", "self,tcp"),
        ONE_SIDED_BY_NO_DEVICE,
        COLLECTIVE_BY_NO_DEVICE,
        ("PMIX_MCA_gds", "hash"),
        ("OMPI_MCA_mpi_preconnect_mpi", "1"),
        ("PRTE_MCA_hwloc_default_binding_policy", "none"),
    ],
    without_devices: OPEN_MPI_WITHOUT_DEVICES,
    in_groups: &[("OMPI_MCA_btl", "self,sm,tcp")],
    alone: true,
    daemons_not_by_slurm: &[("PRTE_MCA_plm", "ssh")],
    hosts_not_by_slurm: &[("PRTE_MCA_ras", "^slurm")],
    host_options: &["host", "H", "hostfile", "machinefile", "default-hostfile"],
    host_variables: &["PRTE_MCA_prte_default_hostfile"],
    transport: "TCP (ob1, btl self,tcp)",
    moves: ONE_BY_ONE,
    cost: COST,
    tested: "5.0.11",
};

const MPICH: Profile = Profile {
    name: "MPICH",
    // Neither UCX's shared memory nor MPICH's own. Hydra hands the environment to all ranks.
    separable: &[("UCX_TLS", "tcp,self"), ("FI_PROVIDER", "tcp"), ("MPIR_CVAR_NOLOCAL", "1")],
    without_devices: &[("UCX_TLS", "tcp,self,sm"), ("FI_PROVIDER", "tcp")],
    // UCX's would reach over all of a machine; MPICH's own is for the ranks of one proxy.
    in_groups: &[("MPIR_CVAR_NOLOCAL", "0")],
    // They stay together anyway, and many a version may hang at its end without shared memory.
    alone: false,
    // Its launcher is told in any case.
    daemons_not_by_slurm: &[],
    hosts_not_by_slurm: &[("HYDRA_RMK", "user")],
    host_options: &["f", "hostfile", "machinefile", "machine", "machines", "host", "hosts"],
    host_variables: &["HYDRA_HOST_FILE"],
    transport: "TCP (ch4, UCX or libfabric)",
    moves: ONE_BY_ONE,
    cost: COST,
    tested: "4.0.2, 4.3.2, 5.0.2",
};

const INTEL: Profile = Profile {
    name: "Intel MPI",
    // Its ranks have memory in common on each node whatever is set: I_MPI_FABRICS=ofi leaves a segment for them, seen with
    // 2021.18.
    separable: &[("FI_PROVIDER", "tcp"), ("I_MPI_PIN", "0")],
    without_devices: &[("FI_PROVIDER", "tcp")],
    // For it a proxy's ranks are a node's.
    in_groups: &[],
    alone: false,
    daemons_not_by_slurm: &[],
    hosts_not_by_slurm: &[("I_MPI_HYDRA_RMK", "user")],
    host_options: &["f", "hostfile", "machinefile", "machine", "host", "hosts", "hosts-group"],
    host_variables: &["I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_HOSTS_GROUP"],
    transport: "shared memory within a node, TCP (libfabric) between nodes",
    moves: "the ranks of a node move together",
    cost: "nothing within a node",
    tested: "2021.18",
};

const ONE_BY_ONE: &str = "each rank moves by itself";
/// Seen with Open MPI 4.1 on one machine.
const COST: &str = "5 us more for a small message within a machine; NPB class A lost at most 3 %";

impl Profile {
    /// The settings by which ranks can be separated: all from all, or groups.
    pub fn settings(&self, sharing: Sharing) -> impl Iterator<Item = Setting> {
        let in_groups = match sharing {
            Sharing::Groups(_) => self.in_groups,
            Sharing::Apart | Sharing::Nodes => &[],
        };
        let other = move |name: &str| in_groups.iter().find(|(known, _)| *known == name).copied();
        self.separable.iter().map(move |setting| other(setting.0).unwrap_or(*setting))
    }
}

impl RunTime {
    /// What is known of it.
    pub fn profile(self) -> &'static Profile {
        match self {
            Self::OpenMpi4 => &OPEN_MPI_4,
            Self::OpenMpi5 => &OPEN_MPI_5,
            Self::Mpich => &MPICH,
            Self::IntelMpi => &INTEL,
        }
    }
}
