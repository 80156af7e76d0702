//! The real binary on real commands.

mod accesses;
mod alignment;
mod calibrate;
mod call_sites;
mod comparisons;
mod contract;
mod errors;
mod exports;
mod faults;
mod files;
mod flags;
mod forks;
mod generators;
mod limits;
mod page_sets;
mod pairwise;
mod programs;
mod puzzles;
mod rules;
mod run;
mod sabotage;
mod support;
mod sweeps;
mod touch_pages;
mod trace_tools;
mod validations;
