//! The recorder on real processes: C programs compiled here, and programs of the system.

mod attached;
mod background;
mod clock;
mod controls;
mod counted;
mod encoding;
mod ends;
mod filters;
mod forks;
mod full_log;
mod functions;
mod handover;
mod many;
mod obstacles;
mod operators;
mod other_users;
mod pitfalls;
mod policies;
mod processes;
mod programs;
mod refusals;
mod signals;
mod small_stacks;
mod stacks;
mod support;
mod touch_full;
