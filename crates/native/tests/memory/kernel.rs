//! The system calls of the tests. Miri does not support these calls, so it gets equivalents on plain memory.

#[cfg(not(miri))]
pub use hksim_native::Syscalls as Kernel;
#[cfg(miri)]
pub use pretended::Kernel;

#[cfg(miri)]
mod pretended {
    use std::alloc::{Layout, alloc_zeroed};
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicU64, Ordering};

    use hksim_native::Os;
    use hksim_policy::Errno;
    use hksim_policy::memory::{Advice, Mapping};

    /// Fresh pages are zero, and unmapped pages lose their contents. There is no hugetlb pool.
    pub struct Kernel;

    static CLOCK: AtomicU64 = AtomicU64::new(0);

    /// The contents of unmapped memory.
    const GONE: u8 = 0xDD;

    impl Os for Kernel {
        unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno> {
            if matches!(mapping, Mapping::Hugetlb | Mapping::HugetlbPopulated) {
                return Err(Errno(12));
            }
            // SAFETY: the caller's promise.
            unsafe { at.as_ptr().write_bytes(0, bytes) };
            Ok(())
        }

        fn map_anywhere(&self, bytes: usize, _: Mapping) -> Result<NonNull<u8>, Errno> {
            let layout = Layout::from_size_align(bytes, 4096).map_err(|_| Errno(12))?;
            // SAFETY: never empty.
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno(12))
        }

        unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
            // SAFETY: the caller's promise.
            unsafe { at.as_ptr().write_bytes(GONE, bytes) };
            Ok(())
        }

        unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno> {
            if matches!(advice, Advice::DontNeed | Advice::Free) {
                // SAFETY: the caller's promise.
                unsafe { at.as_ptr().write_bytes(0, bytes) };
            }
            Ok(())
        }

        unsafe fn remap(&self, from: NonNull<u8>, bytes: usize, to: NonNull<u8>) -> Result<(), Errno> {
            // SAFETY: the caller's promise: both ranges belong to it and do not overlap.
            unsafe {
                to.as_ptr().copy_from_nonoverlapping(from.as_ptr(), bytes);
                from.as_ptr().write_bytes(GONE, bytes);
            }
            Ok(())
        }

        fn now_ns(&self) -> u64 {
            CLOCK.fetch_add(1000, Ordering::Relaxed)
        }
    }
}
