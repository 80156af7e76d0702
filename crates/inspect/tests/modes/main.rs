//! Inspections of a real process under modes that the test sets. Other tests compare figures that depend on the modes, so
//! this program runs alone (`.ci/tests.sh`).

mod setting;
#[path = "../it/target.rs"]
mod target;
mod verdicts;
