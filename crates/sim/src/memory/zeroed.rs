//! Large zeroed tables that use memory only for their written parts.

use std::cell::Cell;

/// A boxed slice of zeros from `alloc_zeroed`. Pages that are never written use no memory.
pub(crate) fn zeroed_cells<T: Copy + Default>(count: usize) -> Box<[Cell<T>]> {
    let zeros: Box<[T]> = vec![T::default(); count].into_boxed_slice();
    let length = zeros.len();
    let raw = Box::into_raw(zeros).cast::<Cell<T>>();
    // SAFETY: `Cell<T>` is `repr(transparent)` over `T`, so the slice has the same layout and the box the same owner.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(raw, length)) }
}
