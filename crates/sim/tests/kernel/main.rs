//! The kernel model against the running kernel: one directed script per rule, and random ones.
//!
//! The oracle is a C program that executes a script and asks the kernel. It needs root, perf events and frame numbers
//! in pagemap; without them what needs it is skipped, with the reason.

mod c_program;
mod differential;
mod executor;
mod generator;
mod rules;
