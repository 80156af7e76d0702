//! Importers of text formats: recordings of our own program by other people's tools, other people's traces, quirks of each
//! format, and hostile input. `calls.c` among the data is the program.

#[path = "../support/mod.rs"]
mod support;

mod hostile;
mod live;
mod quirks;
mod recordings;
