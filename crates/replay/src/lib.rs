//! Replaying a trace on a real allocator, and measuring it page by page
