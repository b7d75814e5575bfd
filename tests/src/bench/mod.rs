//! Benchmarks: each figure is measured beside the machine's own limit, in the same run.

pub mod beside;
mod changed;
pub mod chart;
pub mod cluster;
pub mod coordinator;
mod counts;
pub mod engine;
pub mod farm;
pub mod figure;
pub mod host;
pub mod kept;
pub mod limits;
pub mod moving;
pub mod queens;
pub mod report;
pub mod scale;
pub mod splits;
pub mod subject;
pub mod svg;
pub mod sweep;
pub mod throttle;
pub mod timeline;
pub mod transports;
pub mod weights;
pub mod wires;
