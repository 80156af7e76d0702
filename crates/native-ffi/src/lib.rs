//! The C interface of the native allocator: a shared object for `LD_PRELOAD`.
//!
//! The semantics are glibc's: `malloc(0)` returns a block, `realloc(p, 0)` frees, errors set `errno`. This is a
//! separate crate, so that linking the rlib never replaces a program's `malloc`.

mod info;
mod locks;
mod open;

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use hksim_native::process;
use hksim_policy::Request;

const PAGE_BYTES: usize = hksim_policy::PAGE_BYTES as usize;

/// Creates the allocator when the object is loaded, because a program may make its first call on a small stack.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        process::prepare();
    }
    at_load
};

#[cold]
fn fail(errno: c_int) -> *mut c_void {
    // SAFETY: the location is this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    ptr::null_mut()
}

#[inline(always)]
fn allocate(bytes: usize, align: usize, zeroed: bool) -> *mut c_void {
    let block = process::allocate(Request { bytes: bytes as u64, align: align as u64, zeroed });
    if block.is_null() { fail(libc::ENOMEM) } else { block.cast() }
}

/// C `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    process::allocate_plain(bytes as u64).cast()
}

/// C `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        Some(bytes) => allocate(bytes, 1, true),
        None => fail(libc::ENOMEM),
    }
}

/// C `free`.
///
/// # Safety
/// `address` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(address: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { process::free(address.cast()) };
}

/// C23 `free_sized`.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(address: *mut c_void, _bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(address) };
}

/// C23 `free_aligned_sized`.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(address: *mut c_void, _align: usize, _bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(address) };
}

/// The old name of [`free`], which glibc's headers no longer have.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(address: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(address) };
}

/// C `realloc`.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(address: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(old) = NonNull::new(address.cast()) else { return malloc(bytes) };
    if bytes == 0 {
        // SAFETY: the caller's promise.
        unsafe { process::free(old.as_ptr()) };
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let new = unsafe { process::resize(old, bytes as u64) };
    if new.is_null() { fail(libc::ENOMEM) } else { new.cast() }
}

/// GNU `reallocarray`.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(address: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { realloc(address, bytes) },
        None => fail(libc::ENOMEM),
    }
}

/// GNU `memalign`.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => allocate(bytes, align, false),
        None => fail(libc::EINVAL),
    }
}

/// C11 `aligned_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    if align.is_power_of_two() { allocate(bytes, align, false) } else { fail(libc::EINVAL) }
}

/// POSIX `posix_memalign`. Like glibc's, this function also sets `errno` if there is no memory.
///
/// # Safety
/// `out` is valid to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let block = process::allocate(Request { bytes: bytes as u64, align: align as u64, zeroed: false });
    if block.is_null() {
        fail(libc::ENOMEM);
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { *out = block.cast() };
    0
}

/// `valloc`.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    allocate(bytes, PAGE_BYTES, false)
}

/// `pvalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(PAGE_BYTES) {
        Some(bytes) => allocate(bytes, PAGE_BYTES, false),
        None => fail(libc::ENOMEM),
    }
}

/// GNU `malloc_usable_size`.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(address: *mut c_void) -> usize {
    match NonNull::new(address.cast()) {
        // SAFETY: the caller's promise.
        Some(address) => unsafe { process::usable_bytes(address) as usize },
        None => 0,
    }
}
