//! The allocator on native memory, with real pointers and threads. All tests also run under Miri, with shorter programs
//! and simulated system calls.

mod faults;
mod forks;
mod jitter;
mod kernel;
mod threads;

use hksim_policy::Policy;

/// Many SuperSlabs and few blocks per slab, so that slabs often become full or empty, get messages and change owners.
const SMALL: Policy = Policy { superslab_bytes: 256 << 10, slab_bytes: 16 << 10, ..Policy::DEFAULT };
