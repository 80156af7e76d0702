//! Whether writes to a huge page raise more than one page fault after a fork.
//!
//! A fork makes the parent's huge page read-only. When the child is gone, the first write makes it writable again, without
//! flushing the processors' TLBs: an outdated read-only entry only causes another fault, at which nothing changes. If the
//! hypervisor backs a virtual machine with small pages, the TLB has an entry for each small page of a huge page, so there
//! can be 511 such faults. On other machines there are none.

use crate::area::faults;
use crate::{PAGE_BYTES, processor};

const HUGE_BYTES: usize = 2 << 20;
const PAGES: usize = HUGE_BYTES / PAGE_BYTES as usize;

/// Additional faults in one huge page after a fork; `None` if this process gets no huge page.
pub fn faults_by_stale_entries() -> Option<u64> {
    // A thread of its own, because it is pinned: on another processor it would meet no outdated entries.
    let measured = std::thread::spawn(|| {
        processor::pin_to_current_processor();
        HugeRange::new()?.faults_after_fork()
    });
    measured.join().ok().flatten()
}

/// 2 MiB that a huge page can map, advised, within a mapping of twice the size.
struct HugeRange {
    mapping: *mut u8,
    start: *mut u8,
}

impl HugeRange {
    fn new() -> Option<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address chosen by the kernel.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), 2 * HUGE_BYTES, protection, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let mapping: *mut u8 = mapping.cast();
        let start = mapping.wrapping_add(mapping.align_offset(HUGE_BYTES));
        // SAFETY: the aligned range lies within the mapping. Advice changes no contents.
        unsafe { libc::madvise(start.cast(), HUGE_BYTES, libc::MADV_HUGEPAGE) };
        Some(Self { mapping, start })
    }

    fn faults_after_fork(&self) -> Option<u64> {
        // One fault installs a huge page; small pages need 512.
        (self.faults_of_writes() == 1).then_some(())?;
        // SAFETY: the child only calls _exit, which is safe in a copy of a process with several threads.
        match unsafe { libc::fork() } {
            // SAFETY: ends the child, and runs none of the parent's handlers.
            0 => unsafe { libc::_exit(0) },
            child if child > 0 => {
                // SAFETY: waits for this child; the status is not wanted.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            }
            _ => return None,
        }
        for page in 0..PAGES {
            // SAFETY: a byte of the mapping.
            unsafe { self.page(page).read_volatile() };
        }
        // One fault makes the huge page writable again.
        Some(self.faults_of_writes().saturating_sub(1))
    }

    fn faults_of_writes(&self) -> u64 {
        let before = faults();
        for page in 0..PAGES {
            // SAFETY: a byte of the mapping, to which there are no references.
            unsafe { self.page(page).write_volatile(1) };
        }
        faults() - before
    }

    fn page(&self, page: usize) -> *mut u8 {
        self.start.wrapping_add(page * PAGE_BYTES as usize)
    }
}

impl Drop for HugeRange {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing else uses.
        unsafe { libc::munmap(self.mapping.cast(), 2 * HUGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_huge_page_has_at_most_one_outdated_entry_for_each_small_page() {
        match super::faults_by_stale_entries() {
            Some(faults) => assert!(faults < 512, "{faults}"),
            None => eprintln!("skipped: no huge page"),
        }
    }
}
