//! The exported functions: each calls the real function and writes a record.
//!
//! The time of a free is read, and the free is recorded, before the real call. So no thread can get the block before
//! its free is recorded. An allocating call is timed and recorded after the real call. A resizing call is timed before
//! and after the real call, and recorded after it.

use core::ptr::null_mut;

use libc::{c_int, c_void, pid_t, size_t};

use crate::clock::ticks;
use crate::encoding::{Kind, Record};
use crate::{clock, forks, pool, real, sequence, sys, thread_buffer};

/// log2 of the page size, the alignment of `valloc` and `pvalloc`.
const PAGE_LOG2: u8 = 12;

/// Records a call about `block` that has just returned.
fn record_call(kind: Kind, block: *mut c_void, size: u64, align_log2: u8) {
    thread_buffer::push(&Record { align_log2, ..Record::new(kind, ticks(), block as u64, size) });
}

/// log2 of `alignment`, rounded up; 0 for 0. Allocators always refuse alignments above 2^63, so 63 represents all of
/// them.
fn log2_ceiling(alignment: size_t) -> u8 {
    match alignment {
        0 => 0,
        _ => (size_t::BITS - (alignment - 1).leading_zeros()).min(size_t::BITS - 1) as u8,
    }
}

/// `count * size`, or `u64::MAX` on overflow.
fn product(count: size_t, size: size_t) -> u64 {
    count.checked_mul(size).map_or(u64::MAX, |bytes| bytes as u64)
}

/// C `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: size_t) -> *mut c_void {
    let Some(real) = real::malloc() else {
        return pool::allocate(size, 1);
    };
    // SAFETY: malloc has no precondition.
    let block = unsafe { real(size) };
    thread_buffer::push_small(Kind::Malloc, block as u64, size as u64);
    block
}

/// C `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    let Some(real) = real::calloc() else {
        return count.checked_mul(size).map_or(null_mut(), |bytes| pool::allocate(bytes, 1));
    };
    // SAFETY: calloc has no precondition.
    let block = unsafe { real(count, size) };
    thread_buffer::push_small(Kind::Calloc, block as u64, product(count, size));
    block
}

/// C `free`.
///
/// # Safety
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if pool::owns(block) {
        return;
    }
    let Some(real) = real::free() else {
        return;
    };
    thread_buffer::push_small(Kind::Free, block as u64, 0);
    // SAFETY: by the caller's promise.
    unsafe { real(block) }
}

/// Historic name of `free`.
///
/// # Safety
/// As for `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: by the caller's promise.
    unsafe { free(block) }
}

/// C23 `free_sized`: the size is a hint that the real allocator may not support.
///
/// # Safety
/// As for `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, _size: size_t) {
    // SAFETY: by the caller's promise.
    unsafe { free(block) }
}

/// C23 `free_aligned_sized`: size and alignment are hints that the real allocator may not support.
///
/// # Safety
/// As for `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _alignment: size_t, _size: size_t) {
    // SAFETY: by the caller's promise.
    unsafe { free(block) }
}

/// C `realloc`.
///
/// # Safety
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: by the caller's promise.
    unsafe { resize(Kind::Realloc, block, size) }
}

/// C `reallocarray`. It does not call glibc's function, because that calls `realloc`, which would record a second call.
///
/// # Safety
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
    if let Some(bytes) = count.checked_mul(size) {
        // SAFETY: by the caller's promise.
        return unsafe { resize(Kind::Reallocarray, block, bytes) };
    }
    let old = block as u64;
    thread_buffer::push(&Record { old, ..Record::new(Kind::Reallocarray, sequence::resize_begins(), 0, u64::MAX) });
    sys::set_errno(libc::ENOMEM);
    null_mut()
}

/// # Safety
/// `block` is null or a live block.
unsafe fn resize(kind: Kind, block: *mut c_void, size: size_t) -> *mut c_void {
    if pool::owns(block) {
        // SAFETY: `owns` has just confirmed it.
        return unsafe { move_out_of_pool(kind, block, size) };
    }
    let Some(real) = real::realloc() else {
        return if block.is_null() { pool::allocate(size, 1) } else { null_mut() };
    };
    clock::thread_resizes();
    let before = sequence::resize_begins();
    // SAFETY: by the caller's promise.
    let new = unsafe { real(block, size) };
    if block.is_null() {
        record_call(kind, new, size as u64, 0);
    } else {
        let (duration, old) = (ticks().wrapping_sub(before), block as u64);
        thread_buffer::push(&Record { duration, old, ..Record::new(kind, before, new as u64, size as u64) });
    }
    new
}

/// Moves a pool block to the real heap, and records it as an allocation there.
///
/// # Safety
/// `block` is a pool block.
#[cold]
unsafe fn move_out_of_pool(kind: Kind, block: *mut c_void, size: size_t) -> *mut c_void {
    let new = match real::malloc() {
        // SAFETY: malloc has no precondition.
        Some(real) => unsafe { real(size) },
        None => return pool::allocate(size, 1),
    };
    if !new.is_null() {
        // SAFETY: both blocks have at least the copied bytes, and a fresh block overlaps no other.
        unsafe {
            let bytes = pool::size(block).min(size);
            core::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), bytes);
        }
    }
    record_call(kind, new, size as u64, 0);
    new
}

/// C `posix_memalign`.
///
/// # Safety
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, alignment: size_t, size: size_t) -> c_int {
    let Some(real) = real::posix_memalign() else {
        return libc::ENOMEM;
    };
    // SAFETY: by the caller's promise.
    let result = unsafe { real(block, alignment, size) };
    // SAFETY: on success the real function has written `*block`.
    let address = if result == 0 { unsafe { *block } } else { null_mut() };
    record_call(Kind::PosixMemalign, address, size as u64, log2_ceiling(alignment));
    result
}

/// C11 `aligned_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void {
    let Some(real) = real::aligned_alloc() else {
        return null_mut();
    };
    // SAFETY: the real function checks its arguments.
    let block = unsafe { real(alignment, size) };
    record_call(Kind::AlignedAlloc, block, size as u64, log2_ceiling(alignment));
    block
}

/// glibc `memalign`.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: size_t, size: size_t) -> *mut c_void {
    let Some(real) = real::memalign() else {
        return null_mut();
    };
    // SAFETY: the real function checks its arguments.
    let block = unsafe { real(alignment, size) };
    record_call(Kind::Memalign, block, size as u64, log2_ceiling(alignment));
    block
}

/// glibc `valloc`.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: size_t) -> *mut c_void {
    let Some(real) = real::valloc() else {
        return null_mut();
    };
    // SAFETY: valloc has no precondition.
    let block = unsafe { real(size) };
    record_call(Kind::Valloc, block, size as u64, PAGE_LOG2);
    block
}

/// glibc `pvalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    let Some(real) = real::pvalloc() else {
        return null_mut();
    };
    // SAFETY: pvalloc has no precondition.
    let block = unsafe { real(size) };
    record_call(Kind::Pvalloc, block, size as u64, PAGE_LOG2);
    block
}

/// glibc `malloc_usable_size`.
///
/// # Safety
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> size_t {
    if pool::owns(block) {
        // SAFETY: `owns` has just confirmed it.
        return unsafe { pool::size(block) };
    }
    let Some(real) = real::malloc_usable_size() else {
        return 0;
    };
    // SAFETY: by the caller's promise.
    let bytes = unsafe { real(block) };
    record_call(Kind::UsableSize, block, 0, 0);
    bytes
}

/// POSIX `fork`. The parent's trace records the child's process id.
///
/// # Safety
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    let Some(real) = real::fork() else {
        sys::set_errno(libc::ENOSYS);
        return -1;
    };
    let shared = forks::Shared::begin();
    let before = ticks();
    // SAFETY: by the caller's promise.
    let child = unsafe { real() };
    if let Some(shared) = shared {
        shared.leave_to(child);
    }
    if child > 0 {
        thread_buffer::push(&Record::new(Kind::Fork, before, child as u64, 0));
    }
    child
}
