//! Memory recordings: the format and its readers.

mod fuzz_targets;
mod python_reader;
mod round_trip;
mod sites;
mod support;
