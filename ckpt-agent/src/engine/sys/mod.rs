//! Safe wrappers of system calls that nix does not have. One file per call or family.
