//! The messages between launcher, coordinator and agent.
