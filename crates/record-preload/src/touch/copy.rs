//! Copies a resized object with instructions of the recorder's own.
//!
//! The page faults of the copy are not the program's. The address of the instruction identifies them.

use core::arch::global_asm;

global_asm!(
    ".hidden hksim_touch_copy",
    ".hidden hksim_touch_copy_end",
    ".globl hksim_touch_copy",
    ".globl hksim_touch_copy_end",
    ".type hksim_touch_copy, @function",
    "hksim_touch_copy:",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "hksim_touch_copy_end:",
);

unsafe extern "C" {
    fn hksim_touch_copy(to: *mut u8, from: *const u8, bytes: usize);
    static hksim_touch_copy_end: u8;
}

/// Copies `bytes` to a block that overlaps nothing.
///
/// # Safety
/// Both blocks have at least that many bytes.
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: by the caller's promise; the routine follows the C calling convention.
    unsafe { hksim_touch_copy(to, from, bytes) }
}

/// First address of the instructions, and the address after them.
pub fn instructions() -> (u64, u64) {
    (hksim_touch_copy as *const () as u64, (&raw const hksim_touch_copy_end) as u64)
}
