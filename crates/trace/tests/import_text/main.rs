//! Importers of text formats: recordings of our program `calls.c` by other tools, other people's traces, quirks of each
//! format, and hostile input.

#[path = "../support/mod.rs"]
mod support;

mod hostile;
mod live;
mod quirks;
mod recordings;
