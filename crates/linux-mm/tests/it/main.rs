//! The model of the kernel, against the running kernel and measured figures.

mod fork;
mod versions;
