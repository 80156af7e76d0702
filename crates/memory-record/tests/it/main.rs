//! Recordings of C programs that know what they did, in both ways of recording.

mod arguments;
mod attached;
mod behaviour;
mod calls;
mod faults;
mod inherited;
mod maps;
mod operations;
mod sites;
mod support;
mod user;
