//! The C library's allocator, where it can be told something (mallopt(3), malloc_trim(3)).

/// Keeps the heap of a program with short-lived threads small: at most two arenas, of which each thread
/// would else get its own.
pub fn few_arenas() {
    #[cfg(target_env = "gnu")]
    {
        /// M_ARENA_MAX
        const ARENA_MAX: libc::c_int = -8;
        // SAFETY: takes numbers only.
        unsafe { libc::mallopt(ARENA_MAX, 2) };
    }
}

/// Gives back to the kernel what is free.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number only.
    unsafe {
        libc::malloc_trim(0);
    }
}
