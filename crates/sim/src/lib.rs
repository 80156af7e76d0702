//! The simulated world: kernel rules, TLB models, simulator driver and design sweeps

pub mod kernel;
