//! Readers of /proc files that the engine needs in a form of its own; the rest comes from the
//! `procfs` crate.

mod maps;
mod members;
pub mod mounts;
mod numa_maps;
mod program;
mod root;
mod stat;
mod walk;

pub use maps::{Mapping, around, read_maps, read_smaps};
pub use members::{Members, Tree};
pub use numa_maps::add_policies;
pub use program::must_be_own;
pub use root::{namespace_root, root_directory};
pub use stat::{innermost_number, stat_of, status_of};
pub use walk::{
    Threads, all_processes, ancestors, children, descendants, descriptor_numbers, inner_number,
    is_ended, is_ending, is_executing, is_io_worker, is_killed, job_number, name_of, namespaces_of,
    parent, pending_signals, read_names, read_text, shown_by, start_time, state, thread_numbers,
    thread_state,
};
