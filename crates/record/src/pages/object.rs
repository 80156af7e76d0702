//! A live watched object, and the touches of its pages.

use hksim_trace::event::{Access, InitialTouch, PageTouches, SiteId};
use hksim_trace::profile::SiteProfile;
use hksim_trace::resolve::RawOp;

use crate::touched::PAGE_BYTES;

/// The touches of a page that are known so far.
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

impl PageSeen {
    fn and(self, access: Access) -> Self {
        match (self, access) {
            (PageSeen::Nothing, Access::Read) => PageSeen::Read,
            (PageSeen::Nothing, Access::Write) => PageSeen::Written,
            (PageSeen::Read, Access::Write) => PageSeen::ReadThenWritten,
            _ => self,
        }
    }

    fn initial_touch(self) -> InitialTouch {
        match self {
            PageSeen::Nothing => InitialTouch::None,
            PageSeen::Read => InitialTouch::Read,
            PageSeen::Written => InitialTouch::All,
            PageSeen::ReadThenWritten => InitialTouch::ReadThenWrite,
        }
    }
}

/// A page of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    seen: PageSeen,
    /// Number of the program's forks before the last known touch.
    forks: u32,
}

/// A live watched object. A small object crosses a page boundary; a large object starts at a page boundary.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The object's offset on its first page.
    lead: u64,
    bytes: u64,
    site: SiteId,
    /// The thread that allocated it.
    pub thread: u32,
    /// Whether its touches count in profiles, which are applied to other objects. Only objects that were allocated
    /// small and stayed small count.
    profiled: bool,
    /// Size at the allocation.
    bytes_made: u64,
    /// Whether `calloc` allocated it.
    zeroed: bool,
    /// Size before the last resize.
    bytes_before: u64,
    /// One entry per page, up to the last page that was touched.
    pages: Vec<Page>,
    /// The touches of the whole object.
    whole: PageSeen,
    /// Number of blocks of its size class that its thread had allocated before it.
    neighbours: u64,
    /// Whether its second page was touched only after the next block of its class was allocated.
    is_second_late: bool,
}

impl Watched {
    /// A newly allocated object.
    pub fn new(address: u64, bytes: u64, zeroed: bool, site: SiteId, thread: u32) -> Self {
        let (profiled, bytes_made, bytes_before) = (bytes < PAGE_BYTES, bytes, bytes);
        let (lead, pages, whole) = (address % PAGE_BYTES, Vec::new(), PageSeen::Nothing);
        Self {
            lead,
            bytes,
            site,
            thread,
            profiled,
            bytes_made,
            zeroed,
            bytes_before,
            pages,
            whole,
            neighbours: 0,
            is_second_late: false,
        }
    }

    /// An object that was smaller than a page in the real allocator's heap, and grew by a resize.
    pub fn moved_in(address: u64, bytes: u64, thread: u32) -> Self {
        let made = Self::new(address, bytes, false, SiteId::UNKNOWN, thread);
        Self {
            profiled: false,
            pages: vec![Page { seen: PageSeen::Written, forks: 0 }],
            whole: PageSeen::Written,
            ..made
        }
    }

    /// The same object with another size, and perhaps another address.
    #[must_use]
    pub fn resized(self, address: u64, bytes: u64) -> Self {
        let lead = address % PAGE_BYTES;
        // When a small object moves, its two pages become one.
        let mut pages =
            if lead == self.lead { self.pages } else { vec![Page { seen: self.whole, forks: self.forks() }] };
        pages.truncate((lead + bytes).div_ceil(PAGE_BYTES) as usize);
        let profiled = self.profiled && bytes < PAGE_BYTES;
        Self { lead, bytes, bytes_before: self.bytes, profiled, pages, ..self }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the number of blocks of its class that its thread had allocated before.
    #[must_use]
    pub fn with_neighbours(self, neighbours: u64) -> Self {
        Self { neighbours, ..self }
    }

    /// Number of its pages.
    pub fn pages(&self) -> usize {
        (self.lead + self.bytes).div_ceil(PAGE_BYTES) as usize
    }

    /// The addresses of its pages, if it is at `address`.
    pub fn page_range(&self, address: u64) -> std::ops::Range<u64> {
        let first = address - self.lead;
        first..first + self.pages() as u64 * PAGE_BYTES
    }

    /// New, empty profiles to which the object belongs: of all objects, of its size, and of its call site.
    pub fn profiles(&self) -> impl Iterator<Item = SiteProfile> + use<> {
        let all = SiteProfile::default();
        let site = (self.site != SiteId::UNKNOWN).then_some(SiteProfile { site: self.site.0, ..all });
        let profiles = [Some(all), Some(SiteProfile::of_size(self.bytes_made, self.zeroed)), site];
        profiles.into_iter().flatten().filter({
            let profiled = self.profiled;
            move |_| profiled
        })
    }

    /// The initial touch that its profiles count.
    pub fn initial_touch(&self) -> InitialTouch {
        let sides =
            PageTouches::of(self.seen(0).initial_touch(), self.seen(1).initial_touch()).map(InitialTouch::PerPage);
        let was_resized = self.bytes != self.bytes_made || self.bytes != self.bytes_before;
        // If the second page was touched first, the two pages do not show the first touch of the whole object. If the
        // second page was touched late, its first access may belong to a neighbouring block.
        let are_lent = self.pages() == 2 && !was_resized && !self.is_second_late;
        let sides = sides.filter(|sides| are_lent && sides.whole() == self.whole.initial_touch());
        sides.unwrap_or(self.whole.initial_touch())
    }

    /// The known touches of a page.
    pub fn seen(&self, page: usize) -> PageSeen {
        self.pages.get(page).map_or(PageSeen::Nothing, |page| page.seen)
    }

    /// Number of the program's forks before the last known touch of any page.
    fn forks(&self) -> u32 {
        self.pages.iter().map(|page| page.forks).max().unwrap_or(0)
    }

    /// Notes a fault on a page after `forks` forks. Returns whether the fault is a touch to report. After a fork, the
    /// next write to a page is reported again.
    pub fn see_fault(&mut self, page: usize, access: Access, forks: u32, neighbours: u64) -> bool {
        let is_new = self.see(page, access, Some(neighbours));
        let Some(page) = self.pages.get_mut(page) else { return is_new };
        let was_shared = std::mem::replace(&mut page.forks, forks) < forks;
        is_new || (was_shared && access == Access::Write)
    }

    /// Notes a touch of a page. Before it, the object's thread had allocated `neighbours` blocks of its class (`None`:
    /// unknown). Returns whether the touch changes what is known of the page.
    pub fn see(&mut self, page: usize, access: Access, neighbours: Option<u64>) -> bool {
        let before = self.seen(page);
        let after = before.and(access);
        if after == before {
            return false;
        }
        if page == 1 && before == PageSeen::Nothing {
            self.is_second_late = neighbours.is_some_and(|neighbours| neighbours != self.neighbours);
        }
        self.whole = self.whole.and(access);
        if self.pages.len() <= page {
            self.pages.resize(page + 1, Page::default());
        }
        self.pages[page].seen = after;
        true
    }

    /// A touch of the part of a page that the object covers.
    pub fn touch(&self, address: u64, page: usize, access: Access) -> RawOp {
        let offset = (page as u64 * PAGE_BYTES).saturating_sub(self.lead);
        let end = ((page as u64 + 1) * PAGE_BYTES - self.lead).min(self.bytes);
        RawOp::Touch { address, offset, bytes: (end - offset) as u32, access }
    }

    /// The assumed write to the bytes that a resize added on a page already written. No fault can show this write.
    pub fn tail_of_written_page(&self, address: u64) -> Option<RawOp> {
        let offset = self.bytes_before;
        let page = (self.lead + offset) / PAGE_BYTES;
        let end = ((page + 1) * PAGE_BYTES - self.lead).min(self.bytes);
        let written = matches!(self.seen(page as usize), PageSeen::Written | PageSeen::ReadThenWritten);
        let bytes = end.checked_sub(offset).filter(|&bytes| bytes > 0 && written)? as u32;
        Some(RawOp::Touch { address, offset, bytes, access: Access::Write })
    }
}
