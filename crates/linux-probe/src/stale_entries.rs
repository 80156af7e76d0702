//! Whether writes to a huge page that is made writable again raise more than one page fault.
//!
//! A fork makes the parent's huge page read-only; when the child is gone, the first write makes it writable again. A page of
//! the hugetlb pool that is first read is read-only until the first write. Neither write flushes the processors' TLBs: an
//! outdated read-only entry only causes another fault, at which nothing changes. If the hypervisor backs a virtual machine
//! with small pages, the TLB has an entry for each small page of a huge page, so there can be 511 such faults. On other
//! machines there are none.

use crate::area::{self, faults};
use crate::{PAGE_BYTES, processor};

const HUGE_BYTES: usize = area::HUGE_BYTES as usize;
const PAGES: usize = HUGE_BYTES / PAGE_BYTES as usize;

/// What made a huge page read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A fork, whose child is gone.
    Fork,
    /// A read before the first write, in a page of the hugetlb pool.
    PoolPageRead,
}

/// Additional faults in one huge page; `None` if this process gets no such page.
pub fn additional_faults(cause: Cause) -> Option<u64> {
    // A thread of its own, because it is pinned: on another processor it would meet no outdated entries.
    let measured = std::thread::spawn(move || {
        processor::pin_to_current_processor();
        match cause {
            Cause::Fork => HugeRange::advised()?.faults_after_fork(),
            Cause::PoolPageRead => Some(HugeRange::of_pool()?.faults_after_reads()),
        }
    });
    measured.join().ok().flatten()
}

/// 2 MiB that a huge page can map, within a mapping.
struct HugeRange {
    mapping: *mut u8,
    mapping_bytes: usize,
    start: *mut u8,
}

impl HugeRange {
    fn advised() -> Option<Self> {
        let range = Self::mapped(2 * HUGE_BYTES, 0)?;
        // SAFETY: the aligned range lies within the mapping of twice the size. Advice changes no contents.
        unsafe { libc::madvise(range.start.cast(), HUGE_BYTES, libc::MADV_HUGEPAGE) };
        Some(range)
    }

    /// `None` if the pool has no free page.
    fn of_pool() -> Option<Self> {
        Self::mapped(HUGE_BYTES, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB)
    }

    fn mapped(mapping_bytes: usize, flags: libc::c_int) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), mapping_bytes, protection, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let mapping: *mut u8 = mapping.cast();
        // Mappings of the pool are aligned already.
        let start = mapping.wrapping_add(mapping.align_offset(HUGE_BYTES));
        Some(Self { mapping, mapping_bytes, start })
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
        Some(self.faults_after_reads())
    }

    fn faults_after_reads(&self) -> u64 {
        for page in 0..PAGES {
            // SAFETY: a byte of the mapping.
            unsafe { self.page(page).read_volatile() };
        }
        // One fault makes the huge page writable.
        self.faults_of_writes().saturating_sub(1)
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
        unsafe { libc::munmap(self.mapping.cast(), self.mapping_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_page_has_at_most_one_outdated_entry_for_each_small_page() {
        let missing =
            [(Cause::Fork, "no huge pages were to be had"), (Cause::PoolPageRead, "no hugetlb pool on this machine")];
        for (cause, reason) in missing {
            match additional_faults(cause) {
                Some(faults) => assert!(faults < 512, "{cause:?}: {faults}"),
                None => eprintln!("skipped: {reason}"),
            }
        }
    }
}
