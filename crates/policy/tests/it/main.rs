//! The allocator on memories of the tests, against models that are written from its description.

mod arithmetic;
mod flags;
mod front_cache;
mod interleavings;
mod purge_curve;
mod random_programs;
mod reuse_orders;
mod short_programs;
