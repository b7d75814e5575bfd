//! Rooms for pipes, files and event descriptors: objects made in this process are dumped,
//! closed, made again from the image, and compared.

#![allow(clippy::unwrap_used, reason = "helpers of tests outside of #[test] functions")]

mod carried;
mod events;
mod files;
mod harness;
mod locks;
mod pipes;
