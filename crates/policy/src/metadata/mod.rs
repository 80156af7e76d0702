//! The data that is stored in the allocator's own memory: structs, and the cells that they consist of.

pub mod bits;
pub mod field;
pub mod meta;
pub mod shared_word;
