//! The real binary on real commands.

mod contract;
mod errors;
mod files;
mod flags;
mod generators;
mod programs;
mod support;
mod sweeps;
