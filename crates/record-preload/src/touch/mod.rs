//! `--accesses pages`: some objects are placed on separate pages, so that their first touches are page faults.
//!
//! The functions here are a layer between the recorder and the real allocator. The recorder calls them instead of the
//! allocator's functions and is otherwise unaware of them. Without `--accesses pages` they are never called.
//!
//! [`sampler`] selects the watched objects. They come from a [`region`] whose addresses are used only once. When an
//! object is freed, the recorder reads the states of its pages from the kernel ([`states`]) and returns the pages.

mod copy;
mod region;
mod sampler;
mod scan;
mod states;

use core::cell::UnsafeCell;
use core::ptr::null_mut;

use libc::{c_int, c_void, size_t};

use crate::open;
use crate::real::Functions;
use crate::touched::WATCHED_BYTES_MIN;
use region::Block;

/// The functions of the real allocator.
struct RealFunctions(UnsafeCell<Functions>);

// SAFETY: written once, before any function of this module can be called.
unsafe impl Sync for RealFunctions {}

static REAL: RealFunctions = RealFunctions(UnsafeCell::new(Functions::NONE));

/// The functions that the recorder calls instead of `found`; `None` if no objects are watched.
pub fn instead_of(found: &Functions) -> Option<Functions> {
    if !sampler::is_on() || found.malloc.is_none() || !region::reserve() {
        return None;
    }
    // SAFETY: this is the only write; it happens before the caller publishes the functions that read it.
    unsafe { *REAL.0.get() = *found };
    open::clear_deep_binding();
    Some(Functions {
        malloc: Some(malloc),
        calloc: found.calloc.and(Some(calloc)),
        realloc: found.realloc.and(Some(realloc)),
        free: found.free.and(Some(free)),
        posix_memalign: found.posix_memalign.and(Some(posix_memalign)),
        aligned_alloc: found.aligned_alloc.and(Some(aligned_alloc)),
        memalign: found.memalign.and(Some(memalign)),
        valloc: found.valloc.and(Some(valloc)),
        pvalloc: found.pvalloc.and(Some(pvalloc)),
        malloc_usable_size: found.malloc_usable_size.and(Some(malloc_usable_size)),
        ..*found
    })
}

fn real_functions() -> &'static Functions {
    // SAFETY: written before the first call.
    unsafe { &*REAL.0.get() }
}

/// A watched object; null if this request is not watched.
#[inline]
fn watched(size: size_t, align: size_t) -> *mut c_void {
    let Some(turn) = sampler::turn(size) else {
        return null_mut();
    };
    region::allocate(size, align, turn).map_or(null_mut(), Block::address)
}

unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    let block = watched(size, 1);
    match real_functions().malloc {
        // SAFETY: malloc has no precondition.
        Some(real) if block.is_null() => unsafe { real(size) },
        _ => block,
    }
}

unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    // Fresh pages are zero.
    let block = count.checked_mul(size).map_or(null_mut(), |bytes| watched(bytes, 1));
    match real_functions().calloc {
        // SAFETY: calloc has no precondition.
        Some(real) if block.is_null() => unsafe { real(count, size) },
        _ => block,
    }
}

unsafe extern "C" fn free(block: *mut c_void) {
    if let Some(block) = Block::at(block) {
        return block.release();
    }
    if let Some(real) = real_functions().free {
        // SAFETY: by the caller's promise.
        unsafe { real(block) }
    }
}

unsafe extern "C" fn realloc(block: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: by the caller's promise.
    unsafe {
        match Block::at(block) {
            _ if block.is_null() => malloc(size),
            Some(block) if size == 0 => resize_to_nothing(block),
            Some(block) => resize(block, size),
            None => resize_real(block, size),
        }
    }
}

/// The real allocator decides what `realloc(p, 0)` does.
unsafe fn resize_to_nothing(block: Block) -> *mut c_void {
    block.release();
    let functions = real_functions();
    let (Some(malloc), Some(realloc)) = (functions.malloc, functions.realloc) else {
        return null_mut();
    };
    // SAFETY: malloc has no precondition, and realloc gets the block that malloc returned.
    unsafe {
        let stand_in = malloc(1);
        if stand_in.is_null() { null_mut() } else { realloc(stand_in, 0) }
    }
}

/// # Safety
/// The block is the caller's to resize.
unsafe fn resize(block: Block, size: size_t) -> *mut c_void {
    if block.resize_in_place(size) {
        return block.address();
    }
    let new = region::allocate_with_room(size).map_or_else(
        // SAFETY: malloc has no precondition.
        || real_functions().malloc.map_or(null_mut(), |real| unsafe { real(size) }),
        Block::address,
    );
    if !new.is_null() {
        // SAFETY: the new block holds more bytes than the old one, and is fresh.
        unsafe { states::copy_touched(block, new) };
        block.release();
    }
    new
}

/// Resizes a block of the real allocator. A block that grows to a page or more is watched from then on.
///
/// # Safety
/// `block` is a live block of the real allocator.
unsafe fn resize_real(block: *mut c_void, size: size_t) -> *mut c_void {
    let functions = real_functions();
    let Some(real) = functions.realloc else {
        return null_mut();
    };
    let grows = size as u64 >= WATCHED_BYTES_MIN;
    if let (true, Some(usable_size), Some(free)) = (grows, functions.malloc_usable_size, functions.free) {
        // SAFETY: by the caller's promise; the new block is larger than the old one, and fresh.
        unsafe {
            let bytes = usable_size(block);
            if (bytes as u64) < WATCHED_BYTES_MIN
                && let Some(new) = region::allocate_with_room(size)
            {
                copy::copy(block.cast(), new.address().cast(), bytes);
                free(block);
                return new.address();
            }
        }
    }
    // SAFETY: by the caller's promise.
    unsafe { real(block, size) }
}

unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: size_t, size: size_t) -> c_int {
    let valid = align.is_power_of_two() && align.is_multiple_of(size_of::<*mut c_void>());
    let block = if valid { watched(size, align) } else { null_mut() };
    match real_functions().posix_memalign {
        // SAFETY: by the caller's promise.
        Some(real) if block.is_null() => unsafe { real(out, align, size) },
        _ => {
            // SAFETY: by the caller's promise.
            unsafe { out.write(block) };
            0
        }
    }
}

unsafe extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    let block = if align.is_power_of_two() { watched(size, align) } else { null_mut() };
    match real_functions().aligned_alloc {
        // SAFETY: the real function checks its arguments.
        Some(real) if block.is_null() => unsafe { real(align, size) },
        _ => block,
    }
}

unsafe extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    let block = if align.is_power_of_two() { watched(size, align) } else { null_mut() };
    match real_functions().memalign {
        // SAFETY: the real function checks its arguments.
        Some(real) if block.is_null() => unsafe { real(align, size) },
        _ => block,
    }
}

unsafe extern "C" fn valloc(size: size_t) -> *mut c_void {
    let block = watched(size, region::PAGE);
    match real_functions().valloc {
        // SAFETY: valloc has no precondition.
        Some(real) if block.is_null() => unsafe { real(size) },
        _ => block,
    }
}

unsafe extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    let whole_pages = size.checked_next_multiple_of(region::PAGE).unwrap_or(0);
    let block = watched(whole_pages, 1);
    match real_functions().pvalloc {
        // SAFETY: pvalloc has no precondition.
        Some(real) if block.is_null() => unsafe { real(size) },
        _ => block,
    }
}

unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> size_t {
    match (Block::at(block), real_functions().malloc_usable_size) {
        (Some(block), _) => block.bytes(),
        // SAFETY: by the caller's promise.
        (None, Some(real)) => unsafe { real(block) },
        (None, None) => 0,
    }
}
