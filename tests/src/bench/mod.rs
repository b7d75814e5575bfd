//! Benchmarks: each figure is measured beside the machine's own limit, in the same run.

pub mod chart;
pub mod cluster;
pub mod coordinator;
pub mod engine;
pub mod figure;
pub mod limits;
pub mod moving;
pub mod queens;
pub mod subject;
pub mod timeline;
