//! Numbers of processes and threads.

/// A process or thread number as the job sees it, in the job's PID namespace.
pub type Pid = i32;
