//! The line model of a simulation that counts cache lines.

use std::ops::Range;

use hksim_linux_mm::Kernel;
use hksim_policy::PAGE_BYTES;

use super::{Accessor, LineCounts, LineModel};
use crate::observer::{Accesses, Cause};
use crate::tlb::PageSize;
use crate::translations::{Change, Translations, page_size};

/// A line model as an observer. `EVERY` is for runs in which the kernel's state needs every access.
#[derive(Clone, Default)]
pub(crate) struct Lines<const EVERY: bool>(LineModel);

impl<const EVERY: bool> Translations for Lines<EVERY> {
    const USED: bool = false;
    const ACCESSES: Accesses = if EVERY { Accesses::Every } else { Accesses::Lines };
    const SEES_INSTALLS: bool = true;

    fn access(&mut self, _page: u64, _size: PageSize, _cause: Cause) {}

    fn changed(&mut self, _pages: &Range<u64>, _by: Change) {}

    #[inline(always)]
    fn access_bytes(&mut self, kernel: &Kernel, bytes: Range<u64>, cause: Cause) {
        self.0.access(bytes, Accessor::of(cause), |page| page_size(kernel, page));
    }

    fn access_table(&mut self, kernel: &Kernel, bytes: Range<u64>) {
        self.access_bytes(kernel, bytes, Cause::Metadata);
    }

    fn faulted(&mut self, is_later: bool) {
        self.0.fault(is_later);
    }

    fn installed(&mut self, pages: Range<u64>) {
        // What the kernel misses is not looked at by page size.
        self.0.access(pages.start * PAGE_BYTES..pages.end * PAGE_BYTES, Accessor::Kernel, |_| PageSize::Base);
    }

    fn lines(&self) -> Option<LineCounts> {
        Some(self.0.counts())
    }
}
