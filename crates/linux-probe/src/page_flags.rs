//! Flags of page frames: /proc/kpageflags, which only root may read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bits of an entry (the kernel's `Documentation/admin-guide/mm/pagemap.rst`).
const ANONYMOUS: u64 = 1 << 12;
const SWAP_BACKED: u64 = 1 << 14;
const COMPOUND_HEAD: u64 = 1 << 15;
const COMPOUND_TAIL: u64 = 1 << 16;
/// Up to this distance it is faster to read the frames between two than to read twice.
const FRAMES_BETWEEN: u64 = 16;

/// Position of a page frame in its folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioPart {
    /// The only page of its folio.
    Single,
    /// The first of several pages.
    Head,
    /// A later page.
    Tail,
}

/// The flags of all page frames. Reading them allocates nothing.
#[derive(Debug)]
pub struct PageFlags {
    file: File,
}

impl PageFlags {
    /// Opens the flags.
    ///
    /// # Errors
    /// The user is not root.
    pub fn open() -> io::Result<PageFlags> {
        let flags = PageFlags { file: File::open("/proc/kpageflags")? };
        flags.part(0)?;
        Ok(flags)
    }

    /// The position of this page frame in its folio.
    ///
    /// # Errors
    /// The frame does not exist.
    pub fn part(&self, frame_number: u64) -> io::Result<FolioPart> {
        let flags = self.flags(frame_number)?;
        Ok(if flags & COMPOUND_HEAD != 0 {
            FolioPart::Head
        } else if flags & COMPOUND_TAIL != 0 {
            FolioPart::Tail
        } else {
            FolioPart::Single
        })
    }

    /// Which of these page frames hold anonymous memory that was given up with `MADV_FREE`, in the order of `frames`. Frames
    /// near each other are read at once. The kernel marks the last few pages of each processor late, and does not tell here
    /// whether a page was written since.
    ///
    /// # Errors
    /// A frame does not exist.
    pub fn lazily_freed(&self, frames: &[u64]) -> io::Result<Vec<bool>> {
        let mut order: Vec<usize> = (0..frames.len()).collect();
        order.sort_unstable_by_key(|&index| frames[index]);
        let mut found = vec![false; frames.len()];
        for run in order.chunk_by(|&one, &next| frames[next] - frames[one] <= FRAMES_BETWEEN) {
            let (Some(&first), Some(&last)) = (run.first(), run.last()) else { continue };
            let (first, last) = (frames[first], frames[last]);
            let mut bytes = vec![0; (last - first + 1) as usize * 8];
            self.file.read_exact_at(&mut bytes, first * 8)?;
            let entries = bytes.as_chunks().0;
            for &index in run {
                let flags = u64::from_ne_bytes(entries[(frames[index] - first) as usize]);
                found[index] = flags & (ANONYMOUS | SWAP_BACKED) == ANONYMOUS;
            }
        }
        Ok(found)
    }

    fn flags(&self, frame_number: u64) -> io::Result<u64> {
        let mut entry = [0; 8];
        self.file.read_exact_at(&mut entry, frame_number * 8)?;
        Ok(u64::from_ne_bytes(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_BYTES;
    use crate::page_states::PageStates;

    /// Every third page of 16 MiB is given up: what is read at once, in the order of frames, is told in the order of pages.
    #[test]
    fn pages_given_up_are_told_in_the_order_asked_for() {
        let (Ok(flags), Ok(states)) = (PageFlags::open(), PageStates::of_process(std::process::id())) else {
            return println!("skipped: only root may read /proc/kpageflags, or no PAGEMAP_SCAN");
        };
        let (pages, page_bytes) = (4096, PAGE_BYTES as usize);
        // SAFETY: a new mapping of this test, which is only accessed within its bounds and removed at the end.
        unsafe {
            let flag = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(std::ptr::null_mut(), pages * page_bytes, 3, flag, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            libc::madvise(memory, pages * page_bytes, libc::MADV_NOHUGEPAGE);
            let memory = memory.cast::<u8>();
            (0..pages).for_each(|page| memory.add(page * page_bytes).write_volatile(1));
            for page in (0..pages).step_by(3) {
                libc::madvise(memory.add(page * page_bytes).cast(), page_bytes, libc::MADV_FREE);
            }
            let first = memory.addr() as u64 / PAGE_BYTES;
            let entries = states.entries(first..first + pages as u64).expect("this process");
            let frames: Vec<u64> = entries.iter().map(|entry| entry.frame_number().expect("present")).collect();
            let found = flags.lazily_freed(&frames).expect("its frames");
            libc::munmap(memory.cast(), pages * page_bytes);
            let known = found.iter().filter(|&&is_lazy| is_lazy).count();
            assert!(found.iter().enumerate().all(|(page, &is_lazy)| !is_lazy || page % 3 == 0));
            // Some may wait in the batch of a processor.
            assert!(known + 64 > pages / 3, "{known} of {}", pages.div_ceil(3));
        }
    }
}
