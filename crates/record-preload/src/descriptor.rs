//! File descriptors of the recorder. They have high numbers and are checked before each use.
//!
//! A program that closes all descriptors closes these too, and may reuse their numbers. So each use first checks that
//! the descriptor still refers to the file for which it was kept.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libc::c_int;

use crate::sys;

/// Lowest number of the recorder's descriptors. It is high because some programs expect particular low numbers.
const LEAST_FD: c_int = 900;

/// A descriptor, or none. A forked child inherits both this memory and the descriptor.
pub struct Descriptor {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Descriptor {
    /// No descriptor.
    pub const fn none() -> Self {
        Self { fd: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    /// Keeps `fd`, or a copy of it with a higher number; false if `fd` is not open.
    pub fn keep(&self, fd: c_int) -> bool {
        let Some((device, inode)) = sys::identity(fd) else {
            return false;
        };
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.move_up(fd);
        true
    }

    /// Keeps `fd` if it refers to the same file as the descriptor kept before; closes it otherwise.
    pub fn keep_again(&self, fd: c_int) -> Option<c_int> {
        if self.is_same(fd) {
            self.move_up(fd);
            return self.get();
        }
        if fd >= 0 {
            sys::close(fd);
        }
        None
    }

    /// The descriptor, if it still refers to the same file.
    pub fn get(&self) -> Option<c_int> {
        let fd = self.fd.load(Ordering::Relaxed);
        self.is_same(fd).then_some(fd)
    }

    /// Closes the descriptor, if it still refers to the same file.
    pub fn close(&self) {
        if let Some(fd) = self.get() {
            sys::close(fd);
            self.fd.store(-1, Ordering::Relaxed);
        }
    }

    fn is_same(&self, fd: c_int) -> bool {
        let kept = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
        fd >= 0 && sys::identity(fd) == Some(kept)
    }

    fn move_up(&self, fd: c_int) {
        let high = sys::duplicate_from(fd, LEAST_FD);
        if high >= 0 {
            sys::close(fd);
        }
        self.fd.store(if high >= 0 { high } else { fd }, Ordering::Relaxed);
    }
}
