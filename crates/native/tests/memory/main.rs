//! The allocator in its native memory, with pointers and threads that are real ones. All of it runs under Miri, too, where
//! programs are shorter and the kernel is played.

mod faults;
mod forks;
mod jitter;
mod kernel;
mod threads;
