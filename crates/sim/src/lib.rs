//! The simulated world: kernel rules, TLB models, simulator driver and design sweeps
