//! Traces: the format, importers, exporters, tools and generators.

mod batch;
mod damage;
mod export;
mod fuzz_targets;
mod generate;
mod import;
mod import_binary;
mod import_text;
mod info;
mod profile;
mod python_reader;
mod resolve;
mod round_trip;
mod support;
mod tools;
