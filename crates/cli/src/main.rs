//! The `hksim` command.
fn main() {}
