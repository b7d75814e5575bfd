//! Commands of arch_prctl(2) (arch/x86/include/uapi/asm/prctl.h), which injected calls make.

/// Whether the thread may execute CPUID.
pub const GET_CPUID: u64 = 0x1011;
/// Sets it.
pub const SET_CPUID: u64 = 0x1012;
/// Parts of the processor's state that the process may use, a bit each.
pub const GET_PARTS: u64 = 0x1022;
/// Asks for a part, by its number.
pub const REQUEST_PART: u64 = 0x1023;
