//! Pages of memory.

/// Bytes per page of this machine.
pub fn page_size() -> u64 {
    // SAFETY: takes a number only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Asks for huge pages under memory that is not touched yet.
pub fn advise_huge(memory: &mut [u8]) {
    let page = page_size() as usize;
    let (start, length) = (memory.as_mut_ptr() as usize, memory.len());
    let first = start.next_multiple_of(page);
    let last = (start + length) / page * page;
    if last > first {
        // SAFETY: whole pages within one live allocation; the advice changes no content. A kernel that does not take it is
        // only slower.
        unsafe { libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_HUGEPAGE) };
    }
}
