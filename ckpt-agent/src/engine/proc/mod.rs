//! Readers of /proc files, one file each.
