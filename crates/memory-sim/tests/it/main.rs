//! Memory recordings, simulated, against the running kernel, naive models and measured figures.

mod attach;
mod ends;
mod families;
mod placement;
mod sites;
mod stacks;
