//! Decides; never touches a process.
