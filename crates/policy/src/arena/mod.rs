//! The memory under the heaps: which SuperSlabs exist, which system calls are made, and when memory is purged.

pub mod backlog;
pub mod large;
pub mod layout;
pub mod locking;
pub mod mapping;
pub mod os;
pub mod paging;
pub mod pool;
pub mod purge;
pub mod run_cache;
