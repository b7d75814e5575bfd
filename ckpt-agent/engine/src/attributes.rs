//! What becomes of each attribute of a process or a thread: all options of prctl(2), and those attributes that other calls
//! set. [The reference](../../../../docs/src/reference/attributes.md) has the same table.

/// What becomes of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is as it was after a restart.
    Kept,
    /// After a restart it is as in any new process.
    Default,
    /// The checkpoint is refused.
    Refused,
    /// It asks, or acts at once, or does nothing.
    Nothing,
    /// Processors that ckptd does not run on have it.
    Elsewhere,
}

impl Fate {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Default => "default",
            Self::Refused => "refused",
            Self::Nothing => "nothing to keep",
            Self::Elsewhere => "other processors",
        }
    }
}

/// An option of prctl(2): name, number (include/uapi/linux/prctl.h), fate, and what limits that.
pub type Prctl = (&'static str, u32, Fate, &'static str);
/// Another attribute: what sets it, fate, and what limits that.
pub type Other = (&'static str, Fate, &'static str);

use Fate::{Default, Elsewhere, Kept, Nothing, Refused};

/// All options of prctl(2) that are known.
#[rustfmt::skip]
pub const OPTIONS: &[Prctl] = &[
    ("PR_SET_PDEATHSIG", 1, Kept, ""),
    ("PR_GET_PDEATHSIG", 2, Nothing, ""),
    ("PR_GET_DUMPABLE", 3, Nothing, ""),
    ("PR_SET_DUMPABLE", 4, Kept, "an ordinary user's process that is not dumpable is refused"),
    ("PR_GET_UNALIGN", 5, Elsewhere, ""),
    ("PR_SET_UNALIGN", 6, Elsewhere, ""),
    ("PR_GET_KEEPCAPS", 7, Nothing, ""),
    ("PR_SET_KEEPCAPS", 8, Kept, ""),
    ("PR_GET_FPEMU", 9, Elsewhere, ""),
    ("PR_SET_FPEMU", 10, Elsewhere, ""),
    ("PR_GET_FPEXC", 11, Elsewhere, ""),
    ("PR_SET_FPEXC", 12, Elsewhere, ""),
    ("PR_GET_TIMING", 13, Nothing, "Linux has one way only"),
    ("PR_SET_TIMING", 14, Nothing, "Linux has one way only"),
    ("PR_SET_NAME", 15, Kept, ""),
    ("PR_GET_NAME", 16, Nothing, ""),
    ("PR_GET_ENDIAN", 19, Elsewhere, ""),
    ("PR_SET_ENDIAN", 20, Elsewhere, ""),
    ("PR_GET_SECCOMP", 21, Nothing, ""),
    ("PR_SET_SECCOMP", 22, Kept, "where ckptd has CAP_SYS_ADMIN; refused elsewhere, as are filters that ask another process"),
    ("PR_CAPBSET_READ", 23, Nothing, ""),
    ("PR_CAPBSET_DROP", 24, Kept, "root for a user: as the machine's own, unless the thread has no_new_privs"),
    ("PR_GET_TSC", 25, Nothing, ""),
    ("PR_SET_TSC", 26, Kept, ""),
    ("PR_GET_SECUREBITS", 27, Nothing, ""),
    ("PR_SET_SECUREBITS", 28, Kept, ""),
    ("PR_SET_TIMERSLACK", 29, Kept, ""),
    ("PR_GET_TIMERSLACK", 30, Nothing, ""),
    ("PR_TASK_PERF_EVENTS_DISABLE", 31, Nothing, "perf events are refused"),
    ("PR_TASK_PERF_EVENTS_ENABLE", 32, Nothing, "perf events are refused"),
    ("PR_MCE_KILL", 33, Kept, ""),
    ("PR_MCE_KILL_GET", 34, Nothing, ""),
    ("PR_SET_MM", 35, Kept, "but not on kernels without it, where /proc shows ckptd's program"),
    ("PR_SET_CHILD_SUBREAPER", 36, Kept, ""),
    ("PR_GET_CHILD_SUBREAPER", 37, Nothing, ""),
    ("PR_SET_NO_NEW_PRIVS", 38, Kept, ""),
    ("PR_GET_NO_NEW_PRIVS", 39, Nothing, ""),
    ("PR_GET_TID_ADDRESS", 40, Nothing, "set_tid_address(2) is kept"),
    ("PR_SET_THP_DISABLE", 41, Kept, "with its flags"),
    ("PR_GET_THP_DISABLE", 42, Nothing, ""),
    ("PR_MPX_ENABLE_MANAGEMENT", 43, Nothing, "Linux has none any more"),
    ("PR_MPX_DISABLE_MANAGEMENT", 44, Nothing, "Linux has none any more"),
    ("PR_SET_FP_MODE", 45, Elsewhere, ""),
    ("PR_GET_FP_MODE", 46, Elsewhere, ""),
    ("PR_CAP_AMBIENT", 47, Kept, ""),
    ("PR_SVE_SET_VL", 50, Default, "the machine's vector length; ARM64 only"),
    ("PR_SVE_GET_VL", 51, Nothing, ""),
    ("PR_GET_SPECULATION_CTRL", 52, Nothing, ""),
    ("PR_SET_SPECULATION_CTRL", 53, Kept, "as far as the machine has it; a line says where not"),
    ("PR_PAC_RESET_KEYS", 54, Kept, "the keys themselves, on ARM64"),
    ("PR_SET_TAGGED_ADDR_CTRL", 55, Default, "ARM64 only"),
    ("PR_GET_TAGGED_ADDR_CTRL", 56, Nothing, ""),
    ("PR_SET_IO_FLUSHER", 57, Kept, "not where root restores a user's job, nor where the thread has given CAP_SYS_RESOURCE up since"),
    ("PR_GET_IO_FLUSHER", 58, Nothing, ""),
    ("PR_SET_SYSCALL_USER_DISPATCH", 59, Kept, "Linux 6.4 and newer; older ones do not tell"),
    ("PR_PAC_SET_ENABLED_KEYS", 60, Default, "ARM64 only"),
    ("PR_PAC_GET_ENABLED_KEYS", 61, Nothing, ""),
    ("PR_SCHED_CORE", 62, Default, "who shares a core with whom is to be said again"),
    ("PR_SME_SET_VL", 63, Default, "the machine's vector length; ARM64 only"),
    ("PR_SME_GET_VL", 64, Nothing, ""),
    ("PR_SET_MDWE", 65, Kept, ""),
    ("PR_GET_MDWE", 66, Nothing, ""),
    ("PR_SET_MEMORY_MERGE", 67, Kept, ""),
    ("PR_GET_MEMORY_MERGE", 68, Nothing, ""),
    ("PR_RISCV_V_SET_CONTROL", 69, Elsewhere, ""),
    ("PR_RISCV_V_GET_CONTROL", 70, Elsewhere, ""),
    ("PR_RISCV_SET_ICACHE_FLUSH_CTX", 71, Elsewhere, ""),
    ("PR_PPC_GET_DEXCR", 72, Elsewhere, ""),
    ("PR_PPC_SET_DEXCR", 73, Elsewhere, ""),
    ("PR_GET_SHADOW_STACK_STATUS", 74, Nothing, ""),
    ("PR_SET_SHADOW_STACK_STATUS", 75, Default, "ARM64 only"),
    ("PR_LOCK_SHADOW_STACK_STATUS", 76, Default, "ARM64 only"),
    ("PR_TIMER_CREATE_RESTORE_IDS", 77, Kept, ""),
    ("PR_FUTEX_HASH", 78, Default, "the kernel's own choice; it changes nothing but speed"),
    ("PR_RSEQ_SLICE_EXTENSION", 79, Default, "newer than what ckptd knows"),
    ("PR_SET_VMA", 0x53564d41, Kept, "names of anonymous memory, but not of the heap and the first stack, whose names the kernel does not tell"),
    ("PR_SET_PTRACER", 0x59616d61, Default, "no call tells who it was"),
];

/// Attributes that other calls set.
#[rustfmt::skip]
pub const OTHERS: &[Other] = &[
    ("credentials(7): users, groups, capabilities", Kept, "groups only where they may be set"),
    ("sched_setattr(2): policy, priority, nice value, slice, deadline, utilization, reset on fork", Kept, "what takes a privilege only with it; a line says where not"),
    ("sched_setaffinity(2)", Kept, "all processors where the machine has none of those"),
    ("ioprio_set(2)", Kept, "what takes a privilege only with it, and not where root restores a user's job; a line says where not"),
    ("/proc/PID/oom_score_adj", Kept, "lower values only with the privilege"),
    ("/proc/PID/coredump_filter", Kept, ""),
    ("personality(2)", Kept, ""),
    ("umask(2)", Kept, ""),
    ("setrlimit(2)", Kept, "a line says where a limit cannot be raised"),
    ("membarrier(2): registrations", Kept, ""),
    ("set_mempolicy(2)", Kept, "where the machine has such nodes; a line says where not"),
    ("mbind(2)", Default, "the thread's own policy"),
    ("pkey_alloc(2)", Kept, ""),
    ("keyctl(2): keyrings of a thread or process", Refused, ""),
    ("keyctl(2): keyring of a session", Default, "that of whoever restarts the job"),
    ("/proc/PID/loginuid, sessionid", Default, "those of whoever restarts the job"),
    ("arch_prctl(2): ARCH_SHSTK_ENABLE", Refused, ""),
    ("mlock(2), mlockall(2)", Kept, "where the limit allows it; a line says where later mappings are not locked"),
    ("mseal(2)", Kept, "where the kernel has it and tells of it; a line says where not"),
    ("landlock_restrict_self(2)", Refused, "as far as it shows: no call tells of it"),
    ("set_robust_list(2), rseq(2), sigaltstack(2), set_tid_address(2)", Kept, ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and numbers of the options that a header defines; values of options are indented (`# define`).
    fn defined(header: &str) -> Vec<(&str, u32)> {
        let lines = header.lines().filter_map(|line| line.strip_prefix("#define PR_"));
        let mut found = Vec::new();
        for line in lines {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
            let number = match value.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => value.parse(),
            };
            found.extend(number.ok().map(|number| (name, number)));
        }
        found
    }

    #[test]
    fn every_option_of_the_header_is_known() {
        let Ok(header) = std::fs::read_to_string("/usr/include/linux/prctl.h") else { return };
        let all = defined(&header);
        assert!(all.len() > 40, "{all:?}");
        for (name, number) in all {
            let known = OPTIONS.iter().find(|(known, ..)| known.strip_prefix("PR_") == Some(name));
            let known = known.map(|(_, number, ..)| *number);
            assert_eq!(known, Some(number), "PR_{name}");
        }
    }

    #[test]
    fn no_option_comes_twice() {
        for (index, (name, number, ..)) in OPTIONS.iter().enumerate() {
            let before = &OPTIONS[..index];
            assert!(
                before.iter().all(|(other, known, ..)| other != name && known < number),
                "{name}"
            );
        }
    }

    #[test]
    fn the_document_says_the_same() {
        let options =
            OPTIONS.iter().map(|(name, _, fate, limit)| (format!("`{name}`"), *fate, *limit));
        let others = OTHERS.iter().map(|(name, fate, limit)| ((*name).to_owned(), *fate, *limit));
        let row = |(name, fate, limit): (String, Fate, &str)| match limit {
            "" => format!("- {name}: {}", fate.word()),
            limit => format!("- {name}: {}; {limit}", fate.word()),
        };
        let expected: Vec<String> = options.chain(others).map(row).collect();
        let document = include_str!("../../../docs/src/reference/attributes.md");
        let found: Vec<String> = document
            .split("\n- ")
            .skip(1)
            .map(|item| item.split("\n\n").next().unwrap_or(item))
            .map(|item| format!("- {}", item.split_whitespace().collect::<Vec<_>>().join(" ")))
            .collect();
        assert_eq!(found, expected);
    }
}
