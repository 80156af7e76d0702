//! A watched object while it lives: which of its pages were seen to be touched.

use hksim_trace::event::{Access, SiteId};
use hksim_trace::profile::SiteProfile;
use hksim_trace::resolve::RawOp;

use crate::touched::PAGE_BYTES;

/// What was seen of a page so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSeen {
    /// No touch.
    #[default]
    Nothing,
    /// A read.
    Read,
    /// A write, before any read.
    Written,
    /// A read, and a write after it.
    ReadThenWritten,
}

/// A page of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    seen: PageSeen,
    /// Forks of the program before the last touch that was seen.
    forks: u32,
}

/// A live watched object, which begins at a page.
#[derive(Clone, Debug)]
pub struct Watched {
    bytes: u64,
    site: SiteId,
    /// The thread that made it.
    pub thread: u32,
    /// Whether its touches are to be lent to others: it was made small, and stayed so.
    profiled: bool,
    /// Bytes that it was made with.
    bytes_made: u64,
    /// Whether `calloc` made it.
    zeroed: bool,
    /// Bytes that it had before it was resized to what it has now.
    bytes_before: u64,
    /// One entry per page, up to the last that was touched.
    pages: Vec<Page>,
}

impl Watched {
    /// An object just made.
    pub fn new(bytes: u64, zeroed: bool, site: SiteId, thread: u32) -> Self {
        let (profiled, bytes_made, bytes_before) = (bytes < PAGE_BYTES, bytes, bytes);
        Self { bytes, site, thread, profiled, bytes_made, zeroed, bytes_before, pages: Vec::new() }
    }

    /// An object that has grown out of the real allocator's heap, where it was smaller than a page.
    pub fn moved_in(bytes: u64, thread: u32) -> Self {
        let made = Self::new(bytes, false, SiteId::UNKNOWN, thread);
        Self { profiled: false, pages: vec![Page { seen: PageSeen::Written, forks: 0 }], ..made }
    }

    /// The same object with another size.
    #[must_use]
    pub fn resized(self, bytes: u64) -> Self {
        let mut pages = self.pages;
        pages.truncate(bytes.div_ceil(PAGE_BYTES) as usize);
        let profiled = self.profiled && bytes < PAGE_BYTES;
        Self { bytes, bytes_before: self.bytes, profiled, pages, ..self }
    }

    /// Its pages.
    pub fn pages(&self) -> usize {
        self.bytes.div_ceil(PAGE_BYTES) as usize
    }

    /// The profiles that it belongs to, without any object yet: of all objects, of its size, of its call site.
    pub fn profiles(&self) -> impl Iterator<Item = SiteProfile> + use<> {
        let all = SiteProfile::default();
        let site = (self.site != SiteId::UNKNOWN).then_some(SiteProfile { site: self.site.0, ..all });
        let profiles = [Some(all), Some(SiteProfile::of_size(self.bytes_made, self.zeroed)), site];
        profiles.into_iter().flatten().filter({
            let profiled = self.profiled;
            move |_| profiled
        })
    }

    /// What was seen of a page.
    pub fn seen(&self, page: usize) -> PageSeen {
        self.pages.get(page).map_or(PageSeen::Nothing, |page| page.seen)
    }

    /// Notes a fault on a page after so many forks of the program; whether it tells anything new. A page that was written is written
    /// anew where a fork came between.
    pub fn see_fault(&mut self, page: usize, access: Access, forks: u32) -> bool {
        let is_new = self.see(page, access);
        let Some(page) = self.pages.get_mut(page) else { return is_new };
        let was_shared = std::mem::replace(&mut page.forks, forks) < forks;
        is_new || (was_shared && access == Access::Write)
    }

    /// Notes a touch of a page; whether it tells anything new.
    pub fn see(&mut self, page: usize, access: Access) -> bool {
        let after = match (self.seen(page), access) {
            (PageSeen::Nothing, Access::Read) => PageSeen::Read,
            (PageSeen::Nothing, Access::Write) => PageSeen::Written,
            (PageSeen::Read, Access::Write) => PageSeen::ReadThenWritten,
            _ => return false,
        };
        if self.pages.len() <= page {
            self.pages.resize(page + 1, Page::default());
        }
        self.pages[page].seen = after;
        true
    }

    /// The touch of a page, as far as the object lies on it.
    pub fn touch(&self, address: u64, page: usize, access: Access) -> RawOp {
        let offset = page as u64 * PAGE_BYTES;
        let bytes = (self.bytes - offset).min(PAGE_BYTES) as u32;
        RawOp::Touch { address, offset, bytes, access }
    }

    /// The write of what a resize added on a page that was written before: no fault can show it, and what is written
    /// once is taken to be written on.
    pub fn tail_of_written_page(&self, address: u64) -> Option<RawOp> {
        let offset = self.bytes_before;
        let page = offset / PAGE_BYTES;
        let end = ((page + 1) * PAGE_BYTES).min(self.bytes);
        let written = matches!(self.seen(page as usize), PageSeen::Written | PageSeen::ReadThenWritten);
        let bytes = end.checked_sub(offset).filter(|&bytes| bytes > 0 && written)? as u32;
        Some(RawOp::Touch { address, offset, bytes, access: Access::Write })
    }
}
