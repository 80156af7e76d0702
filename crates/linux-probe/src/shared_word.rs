//! A number that two processes share, so that one of them knows how far the other got before it was killed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::PAGE_BYTES;

/// The number, in a page that its creator has made present: using it takes no memory of other processes.
#[derive(Debug)]
pub struct SharedWord {
    word: NonNull<AtomicU64>,
    file: OwnedFd,
}

// SAFETY: the page is mapped until the drop, and is only accessed as an atomic number.
unsafe impl Send for SharedWord {}

impl SharedWord {
    /// A number, 0 at first.
    ///
    /// # Errors
    /// No memory, or no descriptors are left.
    pub fn create() -> io::Result<Self> {
        // SAFETY: the name is a C string.
        let file = unsafe { libc::memfd_create(c"hksim progress".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let sized = File::from(file.try_clone()?);
        sized.set_len(PAGE_BYTES)?;
        let word = Self::map(file)?;
        word.set(0);
        Ok(word)
    }

    /// The path by which another process of the same user opens it, while this one exists.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// The number at a path of another process.
    ///
    /// # Errors
    /// There is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != PAGE_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let word = Self::map(file.into())?;
        // Maps the page now.
        word.set(word.get());
        Ok(word)
    }

    fn map(file: OwnedFd) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of a file of one page.
        let page =
            unsafe { libc::mmap(null_mut(), PAGE_BYTES as usize, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        match NonNull::new(page.cast()).filter(|_| page != libc::MAP_FAILED) {
            Some(word) => Ok(Self { word, file }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Stores a number.
    #[inline]
    pub fn set(&self, number: u64) {
        // SAFETY: the mapping lives as long as `self`, is aligned, and every access is atomic.
        unsafe { self.word.as_ref() }.store(number, Relaxed);
    }

    /// The number stored last.
    pub fn get(&self) -> u64 {
        // SAFETY: as for `set`.
        unsafe { self.word.as_ref() }.load(Relaxed)
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference to it is left.
        unsafe { libc::munmap(self.word.as_ptr().cast(), PAGE_BYTES as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_the_same_number() {
        let word = SharedWord::create().expect("a shared page");
        let other = SharedWord::open(&word.path()).expect("its path leads to it");
        other.set(7);
        assert_eq!(word.get(), 7);
        assert!(SharedWord::open(Path::new("/dev/null")).is_err());
    }
}
