//! What a forked child makes its parent pay: pages that are copied since both hold them.

use std::collections::BTreeMap;
use std::ops::Range;

use hksim_policy::Errno;
use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};
use serde::Serialize;

use crate::accounting::Accounting;
use crate::observer::{AccountingObserver, Cause, MemoryObserver, Touch};
use crate::work::Present;
use hksim_linux_mm::{Content, Kernel};

/// One fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ForkReport {
    /// Events before it.
    pub from_event: u64,
    /// Events before the child's exit; absent where it lives on to the end.
    pub until_event: Option<u64>,
    /// Pages that were shared, in entries of their own.
    pub shared_pages: u64,
    /// Huge pages.
    pub shared_huge: u64,
    /// Pages of the hugetlb pool.
    pub shared_hugetlb: u64,
    /// Page tables copied for the child.
    pub page_table_bytes: u64,
    /// Writes that copied a page. With several children alive, those are counted for the one forked last.
    pub copies: u64,
    /// Bytes copied: the memory that the child costs as long as it lives.
    pub copied_bytes: u64,
    /// Huge pages that such writes split.
    pub split_huge: u64,
    /// Faults that copied nothing, since the child was gone.
    pub reuses: u64,
}

/// The children that are alive, and all forks so far.
#[derive(Default)]
pub(crate) struct Forks {
    /// By the number of their report.
    children: BTreeMap<usize, Kernel>,
    reports: Vec<ForkReport>,
}

impl Forks {
    /// Whether there was one.
    pub(crate) fn any(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Whether a child is alive.
    pub(crate) fn has_child(&self) -> bool {
        !self.children.is_empty()
    }

    pub(crate) fn begin(&mut self, child: Kernel, shared: Present, event: u64) {
        let number = self.reports.len();
        self.reports.push(ForkReport {
            from_event: event,
            shared_pages: shared.pages,
            shared_huge: shared.huge,
            shared_hugetlb: shared.hugetlb,
            page_table_bytes: child.page_table_bytes(),
            ..ForkReport::default()
        });
        self.children.insert(number, child);
    }

    /// The child of that fork exits.
    pub(crate) fn end(&mut self, child: u32, event: u64) {
        let number = child as usize;
        self.children.remove(&number);
        if let Some(report) = self.reports.get_mut(number) {
            report.until_event = Some(event);
        }
    }

    /// Tells a report what a write after its fork cost: that of the child forked last of those that are alive, or of all.
    pub(crate) fn charged(&mut self, tell: impl FnOnce(&mut ForkReport)) {
        let newest = self.children.last_key_value().map(|(&number, _)| number);
        let number = newest.or(self.reports.len().checked_sub(1));
        number.and_then(|number| self.reports.get_mut(number)).map(tell);
    }

    pub(crate) fn reports(&self) -> &[ForkReport] {
        &self.reports
    }
}

/// Accounts of a run in which writes of metadata must be seen: after a fork they copy pages, after a split of a huge page they
/// fill pages that were all zeros.
pub(crate) struct MetadataObserver(pub(crate) Accounting);

impl AccountingObserver for MetadataObserver {
    fn accounting(&self) -> &Accounting {
        &self.0
    }

    fn accounting_mut(&mut self) -> &mut Accounting {
        &mut self.0
    }
}

impl MemoryObserver for MetadataObserver {
    const EVERY_ACCESS: bool = true;

    fn touch(&mut self, page: u64, touch: Touch, cause: Cause) {
        self.0.touch(page, touch, cause);
    }

    fn access(&mut self, _pages: Range<u64>, _cause: Cause) {}

    fn reserve(&mut self, pages: Range<u64>) {
        self.0.reserve(pages);
    }

    fn map_anywhere(&mut self, pages: u64, mapping: Mapping) -> Result<u64, Errno> {
        self.0.map_anywhere(pages, mapping)
    }

    fn trim(&mut self, pages: Range<u64>) -> Result<(), Errno> {
        self.0.trim(pages)
    }

    fn map(&mut self, pages: Range<u64>, mapping: Mapping) -> Result<(), Errno> {
        self.0.map(pages, mapping)
    }

    fn unmap(&mut self, pages: Range<u64>) -> Result<(), Errno> {
        self.0.unmap(pages)
    }

    fn content(&mut self, page: u64, content: Content) {
        self.0.content(page, content);
    }

    fn advise(&mut self, pages: Range<u64>, advice: Advice) -> Result<(), Errno> {
        self.0.advise(pages, advice)
    }

    fn lock_process(&mut self, lock: MemoryLock) {
        self.0.lock_process(lock);
    }

    fn lock(&mut self, pages: Range<u64>, locking: Locking) -> Result<(), Errno> {
        self.0.lock(pages, locking)
    }

    fn remap(&mut self, pages: Range<u64>, to: u64) -> Result<(), Errno> {
        self.0.remap(pages, to)
    }
}
