//! The C interface of the native allocator, as a preloadable shared object.
