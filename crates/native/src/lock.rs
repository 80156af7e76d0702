//! A lock that the child of a fork can use, whoever held it at the fork.
//!
//! It is not held while a process forks: the C library takes locks of its own after the handlers have run, and another
//! thread may hold one of those (a stream's) while it waits for memory.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::errno::keeping_errno;

/// A mutex in a cell.
pub(crate) struct ForkLock<T>(UnsafeCell<Mutex<T>>);

// SAFETY: as a mutex; `renew` asks for the only thread.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T: Copy> ForkLock<T> {
    pub(crate) const fn new(value: T) -> ForkLock<T> {
        ForkLock(UnsafeCell::new(Mutex::new(value)))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // SAFETY: only `renew` takes it exclusively.
        let mutex = unsafe { &*self.0.get() };
        match mutex.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Waiting asks the kernel, which may be in time or not.
            Err(TryLockError::WouldBlock) => keeping_errno(|| mutex.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Makes the lock free. Returns whether a thread held it: then what it guards may be half changed.
    ///
    /// # Safety
    /// Called in the child of a fork, while it has one thread, which does not hold the lock.
    pub(crate) unsafe fn renew(&self) -> bool {
        // SAFETY: nobody else is there.
        let mutex = unsafe { &mut *self.0.get() };
        let held = matches!(mutex.try_lock(), Err(TryLockError::WouldBlock));
        let value = *mutex.get_mut().unwrap_or_else(PoisonError::into_inner);
        *mutex = Mutex::new(value);
        held
    }
}
