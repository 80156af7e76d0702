//! Chunks and thread buffers for a process whose system-call filter forbids mapping memory. They are mapped before the
//! filter takes effect.
//!
//! The chunks are a window of the log. The process uses only *granted* chunks: these have space in the file, so that no
//! store can hit a full disk. A few are granted at first. `hksim`, which has no filter, grants more as they are used
//! (`event_log.rs`, [`Window`]).

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::event_log::{CHUNK_BYTES, Window};
use crate::thread_buffer::ThreadBuffer;
use crate::{session, sys};

/// Number of chunks in the window: 512 MiB. A larger window would make the log look like a sparse file.
const CHUNKS: u32 = 2048;
/// Chunks granted at the start: 32 MiB, four million events.
const CHUNKS_GRANTED: u32 = 128;
/// Number of buffers for threads that start later.
const BUFFERS: usize = 256;

/// The reserve of a process. If all bytes are zero, nothing is reserved.
#[repr(C)]
pub struct Reserve {
    /// The window's first chunk, or null.
    chunks: AtomicPtr<u8>,
    /// The buffers, or null.
    buffers: AtomicPtr<ThreadBuffer>,
    buffers_taken: AtomicUsize,
}

impl Reserve {
    /// Maps the window in the log `fd`. `first` reserves the given number of chunks and returns the number of the
    /// first one; `window` describes them to the reader.
    pub fn prefill(&self, fd: i32, window: *mut Window, first: impl FnOnce(u32) -> u32) {
        if !self.chunks.load(Ordering::Acquire).is_null() {
            return;
        }
        self.buffers.store(sys::map_wiped_on_fork(BUFFERS * size_of::<ThreadBuffer>()).cast(), Ordering::Release);
        let first = first(CHUNKS);
        let offset = u64::from(first) * CHUNK_BYTES as u64;
        if !sys::reserve(fd, offset, CHUNKS_GRANTED as usize * CHUNK_BYTES) {
            return;
        }
        let mut count = CHUNKS;
        let mut chunks = sys::map_shared(fd, offset, count as usize * CHUNK_BYTES);
        if chunks.is_null() {
            count = CHUNKS_GRANTED;
            chunks = sys::map_shared(fd, offset, count as usize * CHUNK_BYTES);
        }
        if chunks.is_null() {
            return;
        }
        // SAFETY: the control page is never unmapped; its reader checks `chunks` first.
        unsafe {
            AtomicU32::from_ptr(&raw mut (*window).first).store(first, Ordering::Relaxed);
            AtomicU32::from_ptr(&raw mut (*window).granted).store(CHUNKS_GRANTED, Ordering::Relaxed);
            AtomicU32::from_ptr(&raw mut (*window).chunks).store(count, Ordering::Release);
        }
        self.chunks.store(chunks.cast(), Ordering::Release);
    }

    /// Number and mapping of a chunk of the window; `None` if none is available now.
    pub fn take_chunk(&self, window: *mut Window) -> Option<(u32, *mut u8)> {
        let chunks = self.chunks.load(Ordering::Acquire);
        if chunks.is_null() {
            return None;
        }
        // SAFETY: the control page is never unmapped, and these fields are only accessed atomically.
        let (first, granted, taken) = unsafe {
            (
                AtomicU32::from_ptr(&raw mut (*window).first).load(Ordering::Relaxed),
                AtomicU32::from_ptr(&raw mut (*window).granted),
                AtomicU32::from_ptr(&raw mut (*window).taken),
            )
        };
        let is_granted = |taken: u32| (taken < granted.load(Ordering::Acquire)).then_some(taken + 1);
        let index = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_granted).ok()?;
        session::count_chunk();
        // SAFETY: granted chunks are in the window, which stays mapped.
        Some((first + index, unsafe { chunks.add(index as usize * CHUNK_BYTES) }))
    }

    /// A new thread buffer; null if none is left.
    pub fn take_buffer(&self) -> *mut ThreadBuffer {
        let buffers = self.buffers.load(Ordering::Acquire);
        if buffers.is_null() || self.buffers_taken.load(Ordering::Relaxed) >= BUFFERS {
            return null_mut();
        }
        let index = self.buffers_taken.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `BUFFERS` buffers are mapped there.
        if index < BUFFERS { unsafe { buffers.add(index) } } else { null_mut() }
    }
}
