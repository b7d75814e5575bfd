//! Features of the processor by which programs choose their code.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use super::super::arch::{Architecture, Current};

/// Flags of x86 that are no instructions and no registers of programs: what only kernels and hypervisors use, what tells of the
/// machine's clocks, sensors and caches, and what the kernel does about faults of the processor
/// (arch/x86/include/asm/cpufeatures.h; words 3, 7, 8, 11 and 21 are the kernel's own words, 14 is power, 15 is SVM). A machine
/// without them runs what was begun on one with them.
const OF_THE_SYSTEM: &[&str] = &[
    // Paging, protection, interrupts, debugging.
    "apic",
    "x2apic",
    "extapic",
    "extd_apicid",
    "cr8_legacy",
    "de",
    "mca",
    "mce",
    "mtrr",
    "nx",
    "pae",
    "pat",
    "pcid",
    "pdcm",
    "pdpe1gb",
    "pge",
    "pse",
    "pse36",
    "sep",
    "smap",
    "smep",
    "umip",
    "vme",
    "la57",
    "invpcid",
    "xsaves",
    "xtpr",
    "dca",
    "pbe",
    "bus_lock_detect",
    "split_lock_detect",
    "fred",
    "pconfig",
    "tme",
    "sme",
    "sev",
    "sev_es",
    "sev_snp",
    "succor",
    "overflow_recov",
    "smca",
    "sgx",
    "sgx_lc",
    "smx",
    "pks",
    "arch_lbr",
    "intel_pt",
    "arch_capabilities",
    "core_capabilities",
    "md_clear",
    "flush_l1d",
    "bpext",
    "invpcid_single",
    "tlb_flush",
    "ibs",
    "osvw",
    "skinit",
    "wdt",
    "nodeid_msr",
    "tce",
    "topoext",
    "perfctr_core",
    "perfctr_nb",
    "perfctr_l2",
    "perfctr_llc",
    "perfmon_v2",
    "amd_lbr_v2",
    "amd_lbr_pmc_freeze",
    "svm",
    "invlpgb",
    "wbnoinvd",
    "debug_swap",
    "autoibrs",
    "arch_perfmon",
    "bts",
    "pebs",
    "dtes64",
    "ds_cpl",
    "dts",
    "cqm",
    "cqm_llc",
    "cqm_occup_llc",
    "cqm_mbm_total",
    "cqm_mbm_local",
    "cat_l2",
    "cat_l3",
    "cdp_l2",
    "cdp_l3",
    "rdt_a",
    "mba",
    "smba",
    "bmec",
    "sbmba",
    "coherency_sfw_no",
    // Virtual machines.
    "vmx",
    "hypervisor",
    "vmmcall",
    "tpr_shadow",
    "flexpriority",
    "ept",
    "ept_ad",
    "ept_5level",
    "ept_violation_ve",
    "vpid",
    "vnmi",
    "vgif",
    "npt",
    "lbrv",
    "svm_lock",
    "nrip_save",
    "tsc_scale",
    "vmcb_clean",
    "flushbyasid",
    "decodeassists",
    "pausefilter",
    "pfthreshold",
    "avic",
    "v_vmsave_vmload",
    "v_spec_ctrl",
    "x2avic",
    "tdx_guest",
    "tdx_host_platform",
    // Clocks, power, heat, names of models.
    "acpi",
    "aperfmperf",
    "arat",
    "art",
    "constant_tsc",
    "cpb",
    "cppc",
    "cpuid",
    "dtherm",
    "epb",
    "est",
    "hfi",
    "hwp",
    "hwp_act_window",
    "hwp_epp",
    "hwp_notify",
    "hwp_pkg_req",
    "hw_pstate",
    "ida",
    "nonstop_tsc",
    "nonstop_tsc_s3",
    "nopl",
    "pln",
    "pts",
    "proc_feedback",
    "rapl",
    "rep_good",
    "ss",
    "tm",
    "tm2",
    "tsc_adjust",
    "tsc_deadline_timer",
    "tsc_known_freq",
    "tsc_reliable",
    "amd_dcm",
    "cpuid_fault",
    "cid",
    "up",
    "xtopology",
    "cmp_legacy",
    "ht",
    "fast_short_op",
    "ring3mwait",
    "centaur_mcr",
    "cyrix_arr",
    "k6_mtrr",
    "amd_hetero_cores",
    "workload_class",
    // What the kernel does about faults.
    "pti",
    "retpoline",
    "rsb_ctxsw",
    "rsb_vmexit",
    "ssbd",
    "ssbs",
    "virt_ssbd",
    "ibrs",
    "ibrs_enhanced",
    "ibpb",
    "ibpb_exit_to_user",
    "stibp",
    "intel_stibp",
    "spec_ctrl",
    "amd_ppin",
    "intel_ppin",
    "srso",
    "btc_no",
    "ibpb_brtype",
    "sbpb",
    "irperf",
    "clear_cpu_buf",
    "psfd",
];

/// What this machine offers, as /proc/cpuinfo names it, and what that has no name for. Looked at once.
pub fn offered() -> &'static [String] {
    static OFFERED: OnceLock<Vec<String>> = OnceLock::new();
    OFFERED.get_or_init(|| {
        let mut all = of(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
        all.extend(Current::unnamed_features());
        all
    })
}

/// What programs that begin on this machine get of it. Looked at once.
pub fn to_programs() -> &'static BTreeSet<String> {
    static PROGRAMS: OnceLock<BTreeSet<String>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let all = offered().iter();
        all.filter(|feature| !Current::is_an_alternative(feature)).cloned().collect()
    })
}

/// Of the first CPU: "flags" on x86, "Features" on ARM, where they are what the kernel tells programs (proc(5)).
fn of(cpuinfo: &str) -> Vec<String> {
    let line = |wanted: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == wanted).then_some(value.split_whitespace())
        })
    };
    let of_x86 = line("flags").into_iter().flatten().filter(|name| !OF_THE_SYSTEM.contains(name));
    let features = of_x86.chain(line("Features").into_iter().flatten());
    // Sorted, each once.
    features.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_found_by_either_name() {
        assert_eq!(of("x: y\nflags\t\t: sse2 avx sse2 vmx\nflags : z\n"), ["avx", "sse2"]);
        assert_eq!(of("Features\t: fp asimd\n"), ["asimd", "fp"]);
        assert!(of("").is_empty());
    }

    #[test]
    fn no_level_of_x86_64_is_left_out() {
        for baseline in protocol::cluster::baseline::Baseline::ALL {
            for feature in baseline.features() {
                assert!(!OF_THE_SYSTEM.contains(&feature.as_str()), "{feature}");
            }
        }
    }
}
