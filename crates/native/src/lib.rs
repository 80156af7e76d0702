//! The native world: the SuperSlab allocator on mmap, with real threads
