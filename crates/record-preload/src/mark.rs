//! `hksim_mark`: what a program calls to name a moment of its run.

use core::ffi::CStr;

use libc::c_char;

use crate::encoding::{MARK_GOES_ON, MARK_PIECE_BYTES, Record};
use crate::{clock, sys, thread_buffer};

/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 10 * MARK_PIECE_BYTES;

/// Puts a mark named `name` into the calling thread's events. A program declares it as a weak symbol, which is null
/// where nothing is recorded.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hksim_mark(name: *const c_char) {
    if name.is_null() {
        return;
    }
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let mut rest = name.get(..NAME_BYTES_MAX).unwrap_or(name);
    let _errno = sys::Errno::save();
    // A handler's own mark must not come between the pieces of this one.
    let _signals = sys::SignalsBlocked::new();
    let ticks = clock::ticks();
    while let Some((piece, after)) = rest.split_at_checked(MARK_PIECE_BYTES).filter(|(_, after)| !after.is_empty()) {
        thread_buffer::push(&Record::mark_piece(ticks, piece, MARK_GOES_ON));
        rest = after;
    }
    thread_buffer::push(&Record::mark_piece(ticks, rest, 0));
}
