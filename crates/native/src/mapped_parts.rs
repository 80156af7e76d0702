//! Locks a range while other threads may unmap parts of it.
//!
//! The kernel's `mlockall` skips unmapped memory. `mlock2` of a range fails with ENOMEM if part of it is unmapped, and
//! with the same error at the limit of locked memory. With `--purge unmap`, another thread's purge unmaps part of the
//! arena for a short time.

use hksim_policy::memory::Locking;
use hksim_policy::{Errno, PAGE_BYTES};

/// Contiguous pages of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// Address of the first page.
    pub(crate) start: usize,
    pub(crate) count: usize,
}

impl Pages {
    pub(crate) fn of_bytes(start: usize, bytes: usize) -> Pages {
        Pages { start, count: bytes.div_ceil(PAGE_BYTES as usize) }
    }

    pub(crate) fn bytes(self) -> usize {
        self.count * PAGE_BYTES as usize
    }

    fn halves(self) -> [Pages; 2] {
        let first = Pages { start: self.start, count: self.count / 2 };
        [first, Pages { start: self.start + first.bytes(), count: self.count - first.count }]
    }
}

/// Number of attempts to lock a page that is mapped. If all of them fail with ENOMEM, the cause is the limit of locked
/// memory, not another thread's `munmap`.
const TRIES: u32 = 32;

/// Locks the mapped pages of a range, as `mlockall` does. `lock` locks a range; if all pages are mapped, it is called
/// once.
///
/// # Errors
/// The kernel's error, except ENOMEM for unmapped pages.
pub(crate) fn lock_mapped_parts(
    pages: Pages,
    locking: Locking,
    lock: &impl Fn(Pages, Locking) -> Result<(), Errno>,
) -> Result<(), Errno> {
    match lock(pages, locking) {
        Err(Errno(libc::ENOMEM)) => {}
        answer => return answer,
    }
    // Lock on fault first. This makes no page present, so ENOMEM has only two possible causes: unmapped pages and the
    // limit.
    in_parts(pages, &|part| lock(part, Locking::OnFault), &|page| lock_page(page, lock))?;
    match locking {
        Locking::OnFault => Ok(()),
        // Like `mlockall`, ignore pages that cannot be made present: inaccessible pages (`mprotect`), and pages that
        // another thread has unmapped.
        Locking::Present => in_parts(pages, &|part| lock(part, Locking::Present), &|_| Ok(())),
    }
}

/// Calls `all` for the range. If this fails with ENOMEM, does the same for each half. Calls `one` for each single page
/// for which `all` fails with ENOMEM.
fn in_parts(
    pages: Pages,
    all: &impl Fn(Pages) -> Result<(), Errno>,
    one: &impl Fn(Pages) -> Result<(), Errno>,
) -> Result<(), Errno> {
    match all(pages) {
        Err(Errno(libc::ENOMEM)) if pages.count > 1 => {
            pages.halves().into_iter().try_for_each(|half| in_parts(half, all, one))
        }
        Err(Errno(libc::ENOMEM)) => one(pages),
        answer => answer,
    }
}

/// Retries a page that could not be locked. Succeeds if the page is not mapped.
fn lock_page(page: Pages, lock: &impl Fn(Pages, Locking) -> Result<(), Errno>) -> Result<(), Errno> {
    for _ in 0..TRIES {
        if !is_mapped(page.start) {
            return Ok(());
        }
        match lock(page, Locking::OnFault) {
            Err(Errno(libc::ENOMEM)) => {}
            answer => return answer,
        }
    }
    Err(Errno(libc::ENOMEM))
}

/// Whether a page is mapped.
fn is_mapped(address: usize) -> bool {
    let mut present = 0;
    // SAFETY: writes one byte, for one page.
    unsafe { libc::mincore(std::ptr::with_exposed_provenance_mut(address), 1, &mut present) == 0 }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::cell::RefCell;
    use std::ptr::{NonNull, null_mut};

    use super::*;

    const COUNT: usize = 64;
    const PAGE: usize = PAGE_BYTES as usize;

    /// Fresh pages, of which those in `unmapped` are unmapped and those in `forbidden` are inaccessible.
    fn pages(unmapped: &[usize], forbidden: &[usize]) -> Pages {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping. The calls below change only its pages, which are not in use.
        unsafe {
            let start = libc::mmap(null_mut(), COUNT * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            for page in forbidden {
                assert_eq!(libc::mprotect(start.byte_add(page * PAGE), PAGE, libc::PROT_NONE), 0);
            }
            for page in unmapped {
                assert_eq!(libc::munmap(start.byte_add(page * PAGE), PAGE), 0);
            }
            Pages { start: start.expose_provenance(), count: COUNT }
        }
    }

    fn lock(pages: Pages, locking: Locking) -> Result<(), Errno> {
        let at = NonNull::new(std::ptr::with_exposed_provenance_mut(pages.start)).expect("a page's address");
        // SAFETY: changes no contents.
        unsafe { crate::os::lock(at, pages.bytes(), locking) }
    }

    fn is_present(page: usize) -> bool {
        let mut present = 0u8;
        // SAFETY: writes one byte, for one page.
        let looked = unsafe { libc::mincore(std::ptr::with_exposed_provenance_mut(page), 1, &mut present) };
        looked == 0 && present & 1 != 0
    }

    #[test]
    fn all_accessible_mapped_pages_are_made_present() {
        for (unmapped, forbidden) in [(&[][..], &[][..]), (&[0, 17, 18, 63], &[]), (&[5], &[0, 40, 63]), (&[], &[31])] {
            let pages = pages(unmapped, forbidden);
            if lock(Pages { start: pages.start + PAGE, count: 1 }, Locking::Present) == Err(Errno(libc::EPERM)) {
                return eprintln!("skipped: memory may not be locked (ulimit -l)");
            }
            assert_eq!(lock_mapped_parts(pages, Locking::OnFault, &lock), Ok(()));
            assert_eq!(lock_mapped_parts(pages, Locking::Present, &lock), Ok(()));
            for page in 0..COUNT {
                let is_left_out = unmapped.contains(&page) || forbidden.contains(&page);
                assert_eq!(
                    is_present(pages.start + page * PAGE),
                    !is_left_out,
                    "page {page} of {unmapped:?}, {forbidden:?}"
                );
            }
        }
    }

    #[test]
    fn a_limit_is_an_error_and_is_found_quickly() {
        let pages = pages(&[3], &[]);
        let calls = RefCell::new(0);
        // Only the first half of the pages may be locked.
        let limited = |part: Pages, locking| {
            *calls.borrow_mut() += 1;
            let end = part.start + part.bytes();
            if end > pages.start + pages.bytes() / 2 { Err(Errno(libc::ENOMEM)) } else { lock(part, locking) }
        };
        match lock_mapped_parts(pages, Locking::Present, &limited) {
            Err(Errno(libc::EPERM)) => return eprintln!("skipped: memory may not be locked (ulimit -l)"),
            answer => assert_eq!(answer, Err(Errno(libc::ENOMEM))),
        }
        assert!(*calls.borrow() < 32 + TRIES, "{calls:?} calls");
        assert_eq!(
            lock_mapped_parts(pages, Locking::Present, &|_, _| Err(Errno(libc::EAGAIN))),
            Err(Errno(libc::EAGAIN))
        );
    }
}
