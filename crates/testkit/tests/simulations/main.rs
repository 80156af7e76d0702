//! Simulations of random traces under random policies, against naive computations and each other.

#[path = "../common/designs.rs"]
mod designs;
mod explained;
mod floor;
mod renaming;
mod shared_placements;
mod worlds;
mod written;
