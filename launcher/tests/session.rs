//! placeholder until the double lands
fn main() {}
