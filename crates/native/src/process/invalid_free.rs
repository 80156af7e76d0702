//! The reaction to invalid frees: a message and an abort, or a count.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hksim_policy::InvalidFree;

use super::stderr::Line;
use crate::config::OnInvalidFree;

/// Number of invalid calls that were ignored.
pub(super) static IGNORED: AtomicU64 = AtomicU64::new(0);
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Sets the reaction. Called at start, before the allocator is created.
pub(super) fn choose(on_invalid_free: OnInvalidFree) {
    GOES_ON.store(on_invalid_free == OnInvalidFree::Count, Ordering::Relaxed);
}

/// Aborts with a message, or counts the call if so configured.
fn end_or_count(words: std::fmt::Arguments<'_>) {
    if GOES_ON.load(Ordering::Relaxed) {
        IGNORED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    Line::new(words).write();
    // SAFETY: never returns.
    unsafe { libc::abort() }
}

/// Handles a pointer into the arena that is not a live block.
#[cold]
pub(crate) fn report_invalid_free(address: NonNull<u8>, superslab: NonNull<u8>, ordinal: u32, what: InvalidFree) {
    let what = match what {
        InvalidFree::DoubleFree => "double free of",
        InvalidFree::Inside => "free or realloc of a pointer into the middle of a block,",
        InvalidFree::NeverAllocated => "free or realloc of a block that was never allocated,",
        InvalidFree::NotInUse => "double free, or free or realloc of memory that is not in use,",
    };
    end_or_count(format_args!("{what} {address:p}: SuperSlab {ordinal} at {superslab:p}"));
}

/// Handles a pointer outside the arena.
#[cold]
pub(super) fn foreign(address: NonNull<u8>) {
    end_or_count(format_args!(
        "free or realloc of a foreign pointer {address:p}: it is outside the arena; it is invalid, or from another allocator (such \
         as glibc's, used by code that dlmopen loaded)"
    ));
}
