//! The allocator in its native memory, with pointers and threads that are real ones. All of it runs under Miri, too, where
//! programs are shorter and the kernel is played.

mod faults;
mod forks;
mod jitter;
mod kernel;
mod threads;

use hksim_policy::Policy;

/// Many SuperSlabs and few blocks in a slab: slabs fill, post, empty and change hands all the time.
const SMALL: Policy = Policy { superslab_bytes: 256 << 10, slab_bytes: 16 << 10, ..Policy::DEFAULT };
