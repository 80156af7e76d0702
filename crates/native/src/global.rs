//! The allocator as Rust's global allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{self, NonNull};

use hksim_policy::Request;

use crate::process;

/// The global allocator, with `preset default` or the policy from the environment. The crate documentation has an
/// example. It may be used from any thread, before and after `main`, and in the child of a fork.
#[derive(Clone, Copy, Debug, Default)]
pub struct SuperSlabs;

fn request(layout: Layout, zeroed: bool) -> Request {
    Request { bytes: layout.size() as u64, align: layout.align() as u64, zeroed }
}

// SAFETY: blocks have the requested size and alignment, stay in place until freed, and belong to one caller.
unsafe impl GlobalAlloc for SuperSlabs {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Blocks of up to 8 bytes are aligned to 8, others to 16.
        if layout.align() <= 8 || (layout.align() == 16 && layout.size() > 8) {
            return process::allocate_plain(layout.size() as u64);
        }
        process::allocate(request(layout, false))
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        process::allocate(request(layout, true))
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, _layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { process::free(address) };
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(old) = NonNull::new(address) else { return ptr::null_mut() };
        if layout.align() <= 16 && new_size > 8 {
            // SAFETY: the caller's promise.
            return unsafe { process::resize(old, new_size as u64) };
        }
        let new = process::allocate(Request { bytes: new_size as u64, align: layout.align() as u64, zeroed: false });
        if !new.is_null() {
            // SAFETY: both blocks have at least the copied bytes and do not overlap; the old block is freed once.
            unsafe {
                ptr::copy_nonoverlapping(address, new, layout.size().min(new_size));
                process::free(old.as_ptr());
            }
        }
        new
    }
}
