//! Frames and lanes for a process that will not be allowed to get any more: mapped before its system-call filter is in force.
//!
//! The frames are a window of the spool. Only those that are *granted* have space in the file, so that no store can meet a
//! full disk; a few at first, and `hksim`, which no filter binds, grants more as they are taken (`spool.rs`, [`Window`]).

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::lane::Lane;
use crate::spool::{FRAME_BYTES, Window};
use crate::{session, sys};

/// Frames of the window: 512 MiB, so that a spool never is little more than holes.
const FRAMES: u32 = 2048;
/// Frames granted at once: 32 MiB, four million events.
const FRAMES_GRANTED: u32 = 128;
/// Lanes for threads to come.
const LANES: usize = 256;

/// What a process has in reserve. All zero: nothing.
#[repr(C)]
pub struct Reserve {
    /// The window's first frame, or null.
    frames: AtomicPtr<u8>,
    /// The lanes, or null.
    lanes: AtomicPtr<Lane>,
    lanes_taken: AtomicUsize,
}

impl Reserve {
    /// Lays in frames `first` and following of the spool `fd`, of which `window` tells the reader. `first` gives their number.
    pub fn lay_in(&self, fd: i32, window: *mut Window, first: impl FnOnce(u32) -> u32) {
        if !self.frames.load(Ordering::Acquire).is_null() {
            return;
        }
        self.lanes.store(sys::map_wiped_on_fork(LANES * size_of::<Lane>()).cast(), Ordering::Release);
        let first = first(FRAMES);
        let offset = u64::from(first) * FRAME_BYTES as u64;
        if !sys::reserve(fd, offset, FRAMES_GRANTED as usize * FRAME_BYTES) {
            return;
        }
        let mut count = FRAMES;
        let mut frames = sys::map_shared(fd, offset, count as usize * FRAME_BYTES);
        if frames.is_null() {
            count = FRAMES_GRANTED;
            frames = sys::map_shared(fd, offset, count as usize * FRAME_BYTES);
        }
        if frames.is_null() {
            return;
        }
        // SAFETY: the control page is mapped for good; its reader looks at `frames` first.
        unsafe {
            AtomicU32::from_ptr(&raw mut (*window).first).store(first, Ordering::Relaxed);
            AtomicU32::from_ptr(&raw mut (*window).granted).store(FRAMES_GRANTED, Ordering::Relaxed);
            AtomicU32::from_ptr(&raw mut (*window).frames).store(count, Ordering::Release);
        }
        self.frames.store(frames.cast(), Ordering::Release);
    }

    /// Number and mapping of a frame of the window; `None` if there is none (now).
    pub fn take_frame(&self, window: *mut Window) -> Option<(u32, *mut u8)> {
        let frames = self.frames.load(Ordering::Acquire);
        if frames.is_null() {
            return None;
        }
        // SAFETY: the control page is mapped for good, and these fields are only used atomically.
        let (first, granted, taken) = unsafe {
            (
                AtomicU32::from_ptr(&raw mut (*window).first).load(Ordering::Relaxed),
                AtomicU32::from_ptr(&raw mut (*window).granted),
                AtomicU32::from_ptr(&raw mut (*window).taken),
            )
        };
        let is_granted = |taken: u32| (taken < granted.load(Ordering::Acquire)).then_some(taken + 1);
        let index = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_granted).ok()?;
        session::count_frame();
        // SAFETY: frames that are granted lie in the window, which stays mapped.
        Some((first + index, unsafe { frames.add(index as usize * FRAME_BYTES) }))
    }

    /// A fresh lane; null if there is none.
    pub fn take_lane(&self) -> *mut Lane {
        let lanes = self.lanes.load(Ordering::Acquire);
        if lanes.is_null() || self.lanes_taken.load(Ordering::Relaxed) >= LANES {
            return null_mut();
        }
        let index = self.lanes_taken.fetch_add(1, Ordering::Relaxed);
        // SAFETY: there are so many.
        if index < LANES { unsafe { lanes.add(index) } } else { null_mut() }
    }
}
