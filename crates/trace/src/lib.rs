//! Allocation traces: event model, .hkt format, importers, generators, statistics

pub mod event;
