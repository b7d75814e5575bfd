//! Tries what the engine needs of the kernel, each thing really, in processes made for it, so that
//! nothing of the caller's is changed.

mod child;
mod error;
mod memory;
mod namespaces;
mod numbers;
mod tracing;

pub use error::ProbeError;
pub use memory::{
    executable_memory, guard_regions, pagemap_scan, privileged_userfaultfd, userfaultfd,
    write_tracking,
};
pub use namespaces::{Inside, inside_namespaces, time_namespace};
pub use numbers::{Numbers, numbers};
pub use tracing::{compare, descriptor, map_files, memory as other_memory, trace_child};
