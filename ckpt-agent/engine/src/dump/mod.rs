//! Reads a frozen job: first its kernel objects, then its processes, whose memory is held by
//! copy-on-write children while the job goes on.

mod areas;
mod attributes;
pub use attributes::login_of;
pub mod clocks;
mod collect;
mod connects;
mod cut_short;
mod detached;
mod directories;
mod earlier;
mod early;
mod files;
mod hidden;
mod inside;
mod into_store;
mod mapped_file;
mod message_senders;
mod namespaces;
mod offers;
mod outside;
mod page_writer;
pub(super) mod pages;
mod posix_timers;
mod process;
mod rings;
mod room;
mod sandbox;
mod shared;
mod sharing;
mod sleep;
mod snapshot_process;
mod snapshot_processes;
mod stages;
mod standins;
mod stops;
mod undumpable;
mod write;

pub use super::sys::page::page_size;
pub use files::build_id;
pub use into_store::process_file;
pub use namespaces::{MOST_NETWORKS, Networks, Places};
pub use process::stat_and_status;
pub use stages::{DumpSettings, Frozen, Quiesced, Snapshot, SnapshotData, freeze_job};
pub use standins::find as find_stand_ins;
pub use write::{ImageSummary, write_image};
