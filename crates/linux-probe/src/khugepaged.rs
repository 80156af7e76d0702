//! Keeps khugepaged from scanning a process that starts while it is idle.

/// A mapping with MADV_HUGEPAGE and without pages. On an idle machine the first process with such a mapping wakes up
/// khugepaged; it must not be one whose pages are observed.
#[derive(Debug)]
pub struct AdvisedMap(*mut libc::c_void);

const ADVISED_BYTES: usize = 4 << 20;

impl AdvisedMap {
    /// Creates the mapping and waits for the scan. `None` if the kernel has no huge pages.
    pub fn new() -> Option<AdvisedMap> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address chosen by the kernel, which nothing else uses; its first byte is written.
        let map = unsafe {
            let map = libc::mmap(std::ptr::null_mut(), ADVISED_BYTES, protection, flags, -1, 0);
            if map == libc::MAP_FAILED {
                return None;
            }
            // A process is not on khugepaged's list because of memory that was never written.
            map.cast::<u8>().write_volatile(1);
            if libc::madvise(map, ADVISED_BYTES, libc::MADV_HUGEPAGE) != 0 {
                return None;
            }
            libc::madvise(map, ADVISED_BYTES, libc::MADV_DONTNEED);
            map
        };
        // khugepaged scans as soon as it wakes up. Let that scan finish first.
        std::thread::sleep(std::time::Duration::from_millis(100));
        Some(AdvisedMap(map))
    }
}

impl Drop for AdvisedMap {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing else uses.
        unsafe { libc::munmap(self.0, ADVISED_BYTES) };
    }
}
