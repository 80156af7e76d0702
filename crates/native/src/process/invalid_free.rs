//! What follows when the program errs: one line and the end, or a count.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hksim_policy::InvalidFree;

use super::stderr::Line;
use crate::config::OnInvalidFree;

/// Calls that were ignored.
pub(super) static IGNORED: AtomicU64 = AtomicU64::new(0);
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Chooses what follows. At start, before there is an allocator.
pub(super) fn choose(on_invalid_free: OnInvalidFree) {
    GOES_ON.store(on_invalid_free == OnInvalidFree::Count, Ordering::Relaxed);
}

/// A call that must not be made: counted where the user asked for that.
fn end_or_count(words: std::fmt::Arguments<'_>) {
    if GOES_ON.load(Ordering::Relaxed) {
        IGNORED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    Line::new(words).write();
    // SAFETY: never returns.
    unsafe { libc::abort() }
}

/// A pointer into the arena that is no live block's.
#[cold]
pub(crate) fn report_invalid_free(address: NonNull<u8>, superslab: NonNull<u8>, ordinal: u32, what: InvalidFree) {
    let what = match what {
        InvalidFree::DoubleFree => "double free of",
        InvalidFree::Inside => "free or realloc of a pointer into the middle of a block,",
        InvalidFree::NeverHandedOut => "free or realloc of a block that was never handed out,",
        InvalidFree::NotInUse => "double free, or free or realloc of memory that is not in use,",
    };
    end_or_count(format_args!("{what} {address:p}: SuperSlab {ordinal} at {superslab:p}"));
}

/// A pointer that this allocator did not hand out.
#[cold]
pub(super) fn foreign(address: NonNull<u8>) {
    end_or_count(format_args!(
        "free or realloc of a foreign pointer {address:p}: it lies outside the arena; another allocator gave it, as glibc's to \
         code that was loaded by dlmopen, or it is none"
    ));
}
