//! Who asked for memory: the innermost frame outside the C library and allocators.

use crate::{Frame, Sites};

/// Shared objects that serve memory to others, by the beginning of their file name: the caller of interest is outside.
const SERVING: [&str; 10] = [
    "libc.so",
    "libc-",
    "ld-linux",
    "ld-musl",
    "libjemalloc",
    "libmimalloc",
    "libtcmalloc",
    "libsnmalloc",
    "libstdc++",
    "libhksim",
];
/// Functions that serve memory to others, without leading underscores, in programs that contain their allocator or libc.
const SERVING_FUNCTIONS: [&str; 16] = [
    "malloc",
    "int_malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "mmap",
    "mmap64",
    "mremap",
    "brk",
    "sbrk",
    "sysmalloc",
];
/// Beginnings of the names of other such functions, without leading underscores: of C++, jemalloc, mimalloc, tcmalloc,
/// Python, Go, SQLite and Rust.
const SERVING_PREFIXES: [&str; 32] = [
    "operator new",
    "std::__new_allocator<",
    "std::allocator<",
    "std::allocator_traits<",
    "gnu_cxx::new_allocator<",
    "sysmalloc_",
    "int_memalign",
    "int_realloc",
    "je_",
    "mi_",
    "tc_",
    "PyMem_",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "PyObject_Arena",
    "pymalloc_",
    "new_arena",
    "allocate_from_new_pool",
    "arena_map_",
    "runtime.sys",
    "runtime.mmap",
    "runtime.(*mheap).",
    "runtime.(*pageAlloc).",
    "runtime.(*mcentral).",
    "runtime.(*mcache).",
    "runtime.malloc",
    "sqlite3Mem",
    "sqlite3Malloc",
    "rust_alloc",
    "rust_realloc",
    "alloc::",
];

/// The frame that asked for memory.
pub struct Caller<'a> {
    /// The innermost frame outside the C library and allocators, or else the outermost frame.
    pub frame: &'a Frame,
    /// Whether it is outside them.
    pub is_outside: bool,
}

/// Who asked for memory with this stack, whose innermost frame is first; `None` for an empty one.
pub fn caller<'a>(sites: &Sites, frames: &'a [Frame]) -> Option<Caller<'a>> {
    let outside = frames.iter().find(|frame| !serves(sites, frame));
    let frame = outside.or(frames.last())?;
    Some(Caller { frame, is_outside: outside.is_some() })
}

fn serves(sites: &Sites, frame: &Frame) -> bool {
    let file = sites.module_of(frame).map(|module| file_name(&module.path));
    let by_file = file.is_some_and(|file| SERVING.iter().any(|known| file.starts_with(known)));
    let name = frame.function.as_deref().unwrap_or_default();
    let plain = name.trim_start_matches('_').trim_start_matches("libc_").trim_start_matches("GI_");
    by_file
        || SERVING_FUNCTIONS.contains(&plain)
        || SERVING_PREFIXES.iter().any(|beginning| plain.starts_with(beginning))
}

/// A frame in a few words: the function, or file and offset.
pub fn short_text(sites: &Sites, frame: &Frame) -> String {
    match (&frame.function, sites.module_of(frame)) {
        (Some(function), _) => function.to_string(),
        (None, Some(module)) => format!("{}+{:#x}", file_name(&module.path), frame.address),
        (None, None) => "generated code".to_string(),
    }
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
