//! The messages between launcher, coordinator and agent, and what it takes to exchange them.
//!
//! Every type that crosses a process boundary is plain data with a serde form, and every stream
//! of them is framed as one JSON value a line ([`frame`]) under a limit. The rooms:
//!
//! - [`agent`]: what a coordinator tells an agent to do with a job, and what the agent reports.
//! - [`clock`]: instants, and the clock on the wall.
//! - [`json`]: how JSON is read.
//! - [`keys`]: keys by which users prove who they are.
//! - [`launch`]: how an agent starts or restores a job, and the streams that it hands back.
//! - [`control`]: what a command says to the process that runs a job, over its Unix socket.
//! - [`compact`]: what is said to many, or of many.
//! - [`cluster`]: the conversations of a cluster.
//! - [`durable`]: small files that are there whole or not at all.
//! - [`database`]: what the machine knows of users and hosts, whichever side asks.
//! - [`frame`]: the framing and its limits.
//! - [`room`]: how much room a file system has.
//! - [`service`]: what a service tells the manager that started it.
//! - [`text`]: texts from outside, cut to a length.
//! - [`transport`]: the encrypted connections of a cluster, and who may open them.

#![forbid(unsafe_code)]

pub mod agent;
pub mod clock;
pub mod cluster;
pub mod compact;
pub mod control;
pub mod database;
pub mod durable;
pub mod frame;
pub mod json;
pub mod keys;
pub mod launch;
pub mod log_times;
pub mod room;
pub mod service;
pub mod task;
pub mod text;
pub mod transport;
