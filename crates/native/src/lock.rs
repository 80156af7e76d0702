//! A lock that the child of a fork can reset, even if another thread held it during the fork.
//!
//! `fork` does not take this lock. The C library takes its own locks after the fork handlers have run. Another thread
//! may hold such a lock (for example a stream's) while it waits for this lock, so taking this lock in `fork` could
//! deadlock.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::errno::keeping_errno;

/// A mutex that can be replaced after a fork.
pub(crate) struct ForkLock<T>(UnsafeCell<Mutex<T>>);

// SAFETY: shared like a mutex; `renew` requires that there is only one thread.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T: Copy> ForkLock<T> {
    pub(crate) const fn new(value: T) -> ForkLock<T> {
        ForkLock(UnsafeCell::new(Mutex::new(value)))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // SAFETY: only `renew` takes an exclusive reference.
        let mutex = unsafe { &*self.0.get() };
        match mutex.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Waiting may make system calls, which may set errno.
            Err(TryLockError::WouldBlock) => keeping_errno(|| mutex.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Resets the lock to free. Returns whether a thread held it; the data that it guards may then be half updated.
    ///
    /// # Safety
    /// Called in the child of a fork, while it has one thread, which does not hold the lock.
    pub(crate) unsafe fn renew(&self) -> bool {
        // SAFETY: there is no other thread.
        let mutex = unsafe { &mut *self.0.get() };
        let held = matches!(mutex.try_lock(), Err(TryLockError::WouldBlock));
        let value = *mutex.get_mut().unwrap_or_else(PoisonError::into_inner);
        *mutex = Mutex::new(value);
        held
    }
}
