//! Removes outdated TLB entries before an operation, so that it takes the faults of the kernel's rules and no others.
//!
//! When the kernel makes a page writable again, it does not flush the TLB: an outdated read-only entry costs one more
//! fault, at which nothing changes. Usually there is none, because the fault that made the page writable removed it. But
//! where a hypervisor backs a virtual machine with small pages, the TLB holds an entry for each small page of a huge
//! page, and up to 511 of them can be outdated. A processor that runs ahead of a fault adds entries during an operation,
//! so touches are separated by fences.

use hksim_linux_probe::PAGE_BYTES;

/// Bytes whose removal flushes the whole TLB of the process. (x86 removes up to 33 pages one by one.)
const FLUSHED_BYTES: usize = 64 * PAGE_BYTES as usize;

/// Flushes the TLB of all threads by a short-lived mapping. Without room for another mapping it does nothing.
pub(super) fn flush() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address chosen by the kernel, which nothing else knows when it is removed.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), FLUSHED_BYTES, protection, flags, -1, 0);
        if start != libc::MAP_FAILED {
            libc::munmap(start, FLUSHED_BYTES);
        }
    }
}
