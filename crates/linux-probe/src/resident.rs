//! Arrays that cause no page faults while faults are counted, such as the replay's own tables. (The replay's
//! `prefault.rs` does the same for code, data and stack.)

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::PAGE_BYTES;

/// A flag for mmap that the kernel ignores (`MAP_EXECUTABLE`). In a memory recording of a replay, the flag marks the
/// replay's own memory; all other memory is the allocator's.
pub const MAP_HARNESS: libc::c_int = libc::MAP_EXECUTABLE;

/// Types of which all-zero bytes are a valid value, and that need no drop.
///
/// # Safety
/// All-zero bytes must be a valid value of the type.
pub unsafe trait Zeroable: Copy {}

// SAFETY: integers are valid whatever their bytes.
unsafe impl Zeroable for u8 {}
// SAFETY: as above.
unsafe impl Zeroable for u32 {}
// SAFETY: as above.
unsafe impl Zeroable for u64 {}

/// An array in its own mapping, present from the start and never on huge pages.
#[derive(Debug)]
pub struct Resident<T: Zeroable> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: the array owns its memory, as a `Vec` does.
unsafe impl<T: Zeroable + Send> Send for Resident<T> {}

impl<T: Zeroable> Resident<T> {
    /// `len` zeroed values.
    pub fn zeroed(len: usize) -> io::Result<Resident<T>> {
        let bytes = len.max(1).checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | MAP_HARNESS);
        // SAFETY: a new mapping at an address chosen by the kernel.
        let got = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(got.cast::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let resident = Resident { start, len };
        make_resident(got.cast(), bytes);
        Ok(resident)
    }
}

impl<T: Zeroable> Deref for Resident<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has room for `len` values, is page-aligned, and started as zeros, which are valid.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> DerefMut for Resident<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> Drop for Resident<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len.max(1) * size_of::<T>()) };
    }
}

/// Makes every page of a range present and writable, keeping its contents.
///
/// It works on whole pages, which includes other data on the first and last page. If the kernel lacks
/// `MADV_POPULATE_WRITE` (before 5.14), each page is written individually.
pub fn make_resident(start: *const u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    let first = start as usize & !(PAGE_BYTES as usize - 1);
    let length = start as usize + bytes - first;
    // SAFETY: the pages belong to live memory of this process; neither advice changes contents.
    let populated = unsafe {
        libc::madvise(first as *mut libc::c_void, length, libc::MADV_NOHUGEPAGE);
        libc::madvise(first as *mut libc::c_void, length, libc::MADV_POPULATE_WRITE)
    };
    if populated != 0 {
        for at in (start as usize..start as usize + bytes).step_by(PAGE_BYTES as usize) {
            let byte = at as *mut u8;
            // SAFETY: a byte of the caller's range, written with its own value.
            unsafe { byte.write_volatile(byte.read_volatile()) };
        }
    }
}
