//! `hksim_mark`, which a program calls to name a moment of its run.

use core::ffi::CStr;

use libc::c_char;

use crate::encoding::{MARK_GOES_ON, MARK_PIECE_BYTES, Record};
use crate::{clock, own_stack, thread_buffer};

/// Maximum size of a name; the rest is cut off.
const NAME_BYTES_MAX: usize = 10 * MARK_PIECE_BYTES;

/// Adds a mark named `name` to the calling thread's events. A program declares this function as a weak symbol, which is
/// null when the program runs without the recorder.
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
    // A mark of a signal handler must not come between the pieces of this mark.
    own_stack::run(|| {
        let ticks = clock::ticks();
        while let Some((piece, after)) = rest.split_at_checked(MARK_PIECE_BYTES).filter(|(_, after)| !after.is_empty())
        {
            thread_buffer::push(&Record::mark_piece(ticks, piece, MARK_GOES_ON));
            rest = after;
        }
        thread_buffer::push(&Record::mark_piece(ticks, rest, 0));
    });
}
