//! Inspections of real processes, against /proc read without hksim and against what the kernel then does.

mod figures;
mod looks;
mod refusals;
mod target;
