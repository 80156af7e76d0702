//! Importers of text formats, tested with recordings of the program `calls.c` by other tools, with other people's
//! traces, with the quirks of each format and with hostile input.

mod hostile;
mod live;
mod quirks;
mod recordings;
