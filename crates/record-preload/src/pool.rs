//! Blocks for calls made before the real functions are known: `dlsym` itself may allocate.
//!
//! Pool blocks are never reused and never recorded. `free`, `realloc` and `malloc_usable_size` recognise them.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use libc::c_void;

const POOL_BYTES: usize = 64 << 10;
/// Number of bytes before each block, which hold its size; also the minimum alignment.
const GRAIN: usize = 16;

#[repr(C, align(4096))]
struct Bytes(UnsafeCell<[u8; POOL_BYTES]>);

// SAFETY: `USED` reserves each byte for one caller only.
unsafe impl Sync for Bytes {}

static BYTES: Bytes = Bytes(UnsafeCell::new([0; POOL_BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

fn base() -> usize {
    BYTES.0.get() as usize
}

/// Whether `block` came from the pool.
#[inline(always)]
pub fn owns(block: *const c_void) -> bool {
    (block as usize).wrapping_sub(base()) < POOL_BYTES
}

/// A zeroed block, or null if the pool is used up. `align` is a power of two.
pub fn allocate(size: usize, align: usize) -> *mut c_void {
    let align = align.max(GRAIN);
    // The block starts after its size, and alignment moves it up by at most `align`.
    let Some(need) = size.checked_add(align + 2 * GRAIN).filter(|&need| need <= POOL_BYTES) else {
        return core::ptr::null_mut();
    };
    let Ok(start) = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        used.checked_add(need).filter(|&end| end <= POOL_BYTES)
    }) else {
        return core::ptr::null_mut();
    };
    let block = (base() + start + GRAIN).next_multiple_of(align);
    let offset = block - base();
    // SAFETY: `offset - GRAIN .. offset + size` is inside the `need` bytes that `USED` reserved for this call alone;
    // `block` is a multiple of 16, so the size before it is aligned.
    unsafe {
        let at = BYTES.0.get().cast::<u8>().add(offset);
        at.sub(GRAIN).cast::<usize>().write(size);
        at.cast()
    }
}

/// Usable bytes of a pool block.
///
/// # Safety
/// `block` came from [`allocate`].
pub unsafe fn size(block: *const c_void) -> usize {
    // SAFETY: allocate wrote the size there.
    unsafe { block.cast::<u8>().sub(GRAIN).cast::<usize>().read() }
}
