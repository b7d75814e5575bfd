//! ckptd: the command.
fn main() {}
