//! The accesses of the simulated memory, page by page.

use std::collections::BTreeMap;
use std::ops::Range;

use hksim_linux_mm::Content;
use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};
use hksim_policy::{Errno, PAGE_BYTES};
use hksim_sim::memory::BASE_PAGE;
use hksim_sim::observer::{Accesses, Cause, MemoryObserver, Touch};

/// How an operation accessed a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedAccess {
    /// Whether the first touch was a read.
    pub reads_first: bool,
    /// Whether the kernel model was informed of a touch.
    pub touched: bool,
    /// Whether any access wrote.
    pub writes: bool,
}

/// Records touches and accesses. Page numbers are relative to the base of the reservation.
#[derive(Clone, Default)]
pub struct AccessRecorder(pub BTreeMap<u64, RecordedAccess>);

impl MemoryObserver for AccessRecorder {
    const ACCESSES: Accesses = Accesses::Every;

    fn touch(&mut self, page: u64, touch: Touch, _cause: Cause) {
        let recorded = self.0.entry(page - BASE_PAGE).or_default();
        if !recorded.touched {
            recorded.reads_first = touch == Touch::Read;
        }
        recorded.touched = true;
        recorded.writes |= touch != Touch::Read;
    }

    fn access(&mut self, bytes: Range<u64>, _cause: Cause) {
        (bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES))
            .for_each(|page| _ = self.0.entry(page - BASE_PAGE).or_default());
    }

    fn reserve(&mut self, _pages: Range<u64>) {}

    fn map(&mut self, _pages: Range<u64>, mapping: Mapping) -> Result<(), Errno> {
        match mapping {
            Mapping::Plain | Mapping::Populated => Ok(()),
            Mapping::Hugetlb | Mapping::HugetlbPopulated => Err(Errno(12)),
        }
    }

    fn map_anywhere(&mut self, _pages: u64, _mapping: Mapping) -> Result<u64, Errno> {
        unreachable!("all SuperSlabs are in the arena")
    }

    fn trim(&mut self, _pages: Range<u64>) -> Result<(), Errno> {
        Ok(())
    }

    fn unmap(&mut self, _pages: Range<u64>) -> Result<(), Errno> {
        Ok(())
    }

    fn content(&mut self, _page: u64, _content: Content) {}

    fn folio_pages_outside(&self, _pages: &Range<u64>) -> Vec<u64> {
        Vec::new()
    }

    fn advise(&mut self, _pages: Range<u64>, _advice: Advice) -> Result<(), Errno> {
        Ok(())
    }

    fn lock_process(&mut self, _lock: MemoryLock) {}

    fn lock(&mut self, _pages: Range<u64>, _locking: Locking) -> Result<(), Errno> {
        Ok(())
    }

    fn remap(&mut self, _old: Range<u64>, _new: Range<u64>) -> Result<(), Errno> {
        Ok(())
    }
}
