//! Follows the pages of a reservation: asks the kernel before and after each system call, and at marks.
//!
//! Between two looks the heap only grows, since pages go by system calls alone; so the peaks below are exact.

use std::io;
use std::ops::Range;

use hksim_drive::{PageRun, PageState};
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};

use crate::classify::{Cause, Tally, Unclassified};
use crate::environment;
use crate::result::Mark;
use crate::shadow::{ABSENT, FRAME_PAGES, Frame, Shadow};
use crate::usage::Usage;
use crate::window::Watch;
use hksim_linux::pagemap::{PageMap, PagesSeen, PresentPages};
use hksim_linux::procfs::ProcText;
use hksim_linux::resident::Resident;
use hksim_linux::traps::TrapStream;

/// The highest values seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    pub(crate) rss_bytes: u64,
    pub(crate) hugetlb_bytes: u64,
    pub(crate) vmas: u64,
    pub(crate) page_table_bytes: u64,
}

/// What the observer itself cost inside the window, where its own tables had to grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnCost {
    pub(crate) faults: u64,
    pub(crate) page_table_bytes: u64,
}

/// Follows one reservation.
pub(crate) struct Observer {
    base_page: u64,
    traps: Option<TrapStream>,
    trapped: Resident<u64>,
    page_map: PageMap,
    maps: ProcText,
    status: ProcText,
    /// Pages of a folio between 4K and 2M, where one such size is switched on.
    folio_pages: Option<u64>,
    /// Frames that reserved huge pages are mapped in: 1.
    hugetlb: Resident<u8>,
    page_table_bytes_before: u64,
    pub(crate) shadow: Shadow,
    pub(crate) tally: Tally,
    pub(crate) peaks: Peaks,
    pub(crate) own: OwnCost,
}

impl Observer {
    /// An observer of a reservation of so many bytes. `traps` is missing where the kernel does not give them.
    pub(crate) fn new(bytes: u64, traps: Option<TrapStream>) -> io::Result<Observer> {
        let shadow = Shadow::new(bytes / PAGE_BYTES)?;
        Ok(Observer {
            base_page: 0,
            trapped: Resident::zeroed(traps.as_ref().map_or(0, TrapStream::capacity))?,
            traps,
            page_map: PageMap::open()?,
            maps: ProcText::open("/proc/self/maps")?,
            status: ProcText::open("/proc/self/status")?,
            hugetlb: Resident::zeroed(shadow.frames())?,
            page_table_bytes_before: 0,
            folio_pages: environment::only_folio_pages(),
            shadow,
            tally: Tally::new(),
            peaks: Peaks::default(),
            own: OwnCost::default(),
        })
    }

    /// Says where the reservation lies. Traps on it may already wait.
    pub(crate) fn locate(&mut self, base: u64) {
        self.base_page = base / PAGE_BYTES;
        self.note_vmas();
    }

    /// The stream of traps.
    pub(crate) fn traps(&self) -> Option<&TrapStream> {
        self.traps.as_ref()
    }

    /// Scans that the kernel broke off.
    pub(crate) fn scan_failures(&self) -> u64 {
        self.page_map.failures()
    }

    /// Classifies what the program did since the last look.
    pub(crate) fn look(&mut self) {
        match self.traps.as_ref() {
            None => self.rescan(0..self.shadow.frames(), Cause::Unseen),
            Some(traps) if traps.waiting_bytes() == 0 => return,
            Some(_) => self.look_at_traps(),
        }
        self.note_resident();
    }

    fn look_at_traps(&mut self) {
        let mut count = 0;
        let pages = self.base_page..self.base_page + (self.shadow.frames() * FRAME_PAGES) as u64;
        if let Some(traps) = &mut self.traps {
            traps.drain(|address| {
                let page = address / PAGE_BYTES;
                if pages.contains(&page) && count < self.trapped.len() {
                    self.trapped[count] = page - pages.start;
                    count += 1;
                }
            });
        }
        self.trapped[..count].sort_unstable();
        let mut next = 0;
        while next < count {
            let frame = self.trapped[next] as usize / FRAME_PAGES;
            let mut on_pages = [0u8; FRAME_PAGES];
            while next < count && self.trapped[next] as usize / FRAME_PAGES == frame {
                let on_page = &mut on_pages[self.trapped[next] as usize % FRAME_PAGES];
                *on_page = on_page.saturating_add(1);
                next += 1;
            }
            self.rescan(frame..frame + 1, Cause::Ran(&on_pages));
        }
    }

    /// Asks the kernel about frames, and classifies what changed in them.
    fn rescan(&mut self, frames: Range<usize>, cause: Cause<'_>) {
        let at = |frame: usize| self.base_page + (frame * FRAME_PAGES) as u64;
        let mut frames_seen = FramesSeen::new(self.page_map.scan(at(frames.start), at(frames.end)), self.base_page);
        for frame in frames {
            let after = frames_seen.frame(frame, self.hugetlb[frame] != 0);
            if after.is_none() && !self.shadow.is_known(frame) {
                if let Cause::Ran(traps) = cause {
                    self.tally.classify((frame * FRAME_PAGES) as u64, &ABSENT, &ABSENT, Cause::Ran(traps));
                }
                continue;
            }
            let after = after.unwrap_or(ABSENT);
            self.tally.classify((frame * FRAME_PAGES) as u64, self.shadow.frame(frame), &after, cause);
            if self.shadow.is_full() {
                grow(&mut self.shadow, &mut self.status, &mut self.own);
            }
            self.shadow.set(frame, &after);
        }
    }

    /// To be called before a system call: what it may take away counts for the peaks.
    pub(crate) fn before_call(&mut self) {
        self.look();
        self.note_page_tables();
    }

    /// The frames that a range of addresses touches.
    fn frames_of(&self, start: u64, bytes: u64) -> Range<usize> {
        let from_base = start - self.base_page * PAGE_BYTES;
        (from_base / HUGE_PAGE_BYTES) as usize..(from_base + bytes).div_ceil(HUGE_PAGE_BYTES) as usize
    }

    /// After a call on a range that makes no page.
    pub(crate) fn after_call(&mut self, start: u64, bytes: u64) {
        self.rescan(self.frames_of(start, bytes), Cause::Called);
        self.note_resident();
    }

    /// After a call that made huge pages of what was there.
    pub(crate) fn after_collapse(&mut self, start: u64, bytes: u64) {
        self.rescan(self.frames_of(start, bytes), Cause::Collapsed);
        self.note_resident();
    }

    /// After a call that populated a range; `faults` is what the kernel charged for it.
    pub(crate) fn after_populate(&mut self, start: u64, bytes: u64, faults: u64) {
        let before = self.tally.installs;
        self.rescan(self.frames_of(start, bytes), Cause::Populated);
        if !self.tally.join_populated(&before, faults, self.folio_pages) {
            let page = start / PAGE_BYTES - self.base_page;
            self.tally.reject(Unclassified { page, before: None, after: None, traps: faults });
        }
        self.note_resident();
    }

    /// After a range was mapped anew: what was there is gone, whatever is there now is new.
    pub(crate) fn mapped_anew(&mut self, start: u64, bytes: u64, hugetlb: bool) {
        let first = start / PAGE_BYTES - self.base_page;
        let end = first + bytes / PAGE_BYTES;
        for frame in self.frames_of(start, bytes) {
            let frame_first = (frame * FRAME_PAGES) as u64;
            let pages =
                first.saturating_sub(frame_first) as usize..(end - frame_first).min(FRAME_PAGES as u64) as usize;
            self.shadow.forget(frame, pages);
            self.hugetlb[frame] = u8::from(hugetlb);
        }
    }

    /// After page tables were moved: as many pages must lie at the target as lay at the source.
    pub(crate) fn moved(&mut self, from: u64, to: u64, bytes: u64) {
        // What lay at the target was unmapped by the move.
        self.mapped_anew(to, bytes, false);
        let before = self.shadow.counts();
        for frame in self.frames_of(from, bytes).chain(self.frames_of(to, bytes)) {
            self.rescan(frame..frame + 1, Cause::Unseen);
        }
        let after = self.shadow.counts();
        if before.resident_bytes() != after.resident_bytes() {
            let page = to / PAGE_BYTES - self.base_page;
            self.tally.reject(Unclassified { page, before: None, after: None, traps: 0 });
        }
        self.note_resident();
    }

    fn note_resident(&mut self) {
        let counts = self.shadow.counts();
        self.peaks.rss_bytes = self.peaks.rss_bytes.max(counts.resident_bytes());
        self.peaks.hugetlb_bytes = self.peaks.hugetlb_bytes.max(counts.pages(PageState::Hugetlb) * PAGE_BYTES);
    }

    /// Counts the reservation's VMAs.
    pub(crate) fn note_vmas(&mut self) -> u64 {
        let start = self.base_page * PAGE_BYTES;
        let end = start + self.shadow.frames() as u64 * HUGE_PAGE_BYTES;
        let vmas = self.maps.maps_within(start, end).unwrap_or(0);
        self.peaks.vmas = self.peaks.vmas.max(vmas);
        vmas
    }

    fn page_tables(&mut self) -> u64 {
        self.status.number("VmPTE:").unwrap_or(0) * 1024
    }

    fn note_page_tables(&mut self) -> u64 {
        let own = self.page_table_bytes_before + self.own.page_table_bytes;
        let bytes = self.page_tables().saturating_sub(own);
        self.peaks.page_table_bytes = self.peaks.page_table_bytes.max(bytes);
        bytes
    }

    /// Looks, then scans the whole reservation afresh: hands out every run of pages, and compares with the shadow.
    pub(crate) fn mark_pages(&mut self, events: u64, mut each: impl FnMut(PageRun)) -> Mark {
        self.look();
        let frames = self.shadow.frames();
        let end = self.base_page + (frames * FRAME_PAGES) as u64;
        let mut seen = FramesSeen::new(self.page_map.scan(self.base_page, end), self.base_page);
        let (mut discrepancies, mut rss_bytes) = (0, 0);
        for frame in 0..frames {
            let Some(now) = seen.frame(frame, self.hugetlb[frame] != 0) else {
                discrepancies += self.shadow.frame(frame).iter().flatten().count() as u64;
                continue;
            };
            discrepancies +=
                self.shadow.frame(frame).iter().zip(&now).filter(|(shadow, now)| shadow != now).count() as u64;
            for (at, state) in now.iter().enumerate() {
                if let Some(state) = *state {
                    rss_bytes += if state.is_resident() { PAGE_BYTES } else { 0 };
                    each(PageRun { first_page: (frame * FRAME_PAGES + at) as u64, pages: 1, state });
                }
            }
        }
        let (vmas, page_table_bytes) = (self.note_vmas(), self.note_page_tables());
        Mark {
            events,
            rss_bytes: Some(rss_bytes),
            vmas: Some(vmas),
            page_table_bytes: Some(page_table_bytes),
            discrepancies,
            pages: Default::default(),
        }
    }
}

impl Watch for Observer {
    fn begin(&mut self) {
        self.page_table_bytes_before = self.page_tables();
        self.traps.iter().for_each(|traps| traps.counter().enable());
    }

    /// Looks if the ring is half full, so that long stretches without a system call lose no trap.
    fn relieve(&mut self) {
        if self.traps.as_ref().is_some_and(|traps| traps.waiting_bytes() * 2 > traps.capacity() as u64 * 16) {
            self.look();
        }
    }

    fn mark(&mut self, events: u64) -> Mark {
        self.mark_pages(events, |_| {})
    }

    fn end(&mut self) -> Option<u64> {
        self.look();
        let traps = self.traps.as_ref()?;
        traps.counter().disable();
        Some(traps.counter().count())
    }
}

/// Grows the shadow, and notes what that cost this process.
#[cold]
fn grow(shadow: &mut Shadow, status: &mut ProcText, own: &mut OwnCost) {
    let (faults, tables) = (Usage::now().faults, status.number("VmPTE:"));
    if shadow.grow().is_err() {
        // Pages of 16 TiB are followed already; the machine has less memory than that.
        return;
    }
    own.faults += Usage::now().faults - faults;
    own.page_table_bytes += (status.number("VmPTE:").unwrap_or(0) - tables.unwrap_or(0)) * 1024;
}

/// A scan, cut into frames.
struct FramesSeen<'a> {
    scan: PagesSeen<'a>,
    pending: Option<PresentPages>,
    base_page: u64,
}

impl<'a> FramesSeen<'a> {
    fn new(mut scan: PagesSeen<'a>, base_page: u64) -> FramesSeen<'a> {
        let pending = scan.next();
        FramesSeen { scan, pending, base_page }
    }

    /// The pages of a frame, `None` if it has none. Frames are asked for in ascending order.
    fn frame(&mut self, frame: usize, hugetlb: bool) -> Option<Frame> {
        let first = self.base_page + (frame * FRAME_PAGES) as u64;
        let end = first + FRAME_PAGES as u64;
        if self.pending.is_none_or(|seen| seen.first_page >= end) {
            return None;
        }
        let mut pages = ABSENT;
        while let Some(seen) = self.pending.filter(|seen| seen.first_page < end) {
            let state = match (seen.is_huge, seen.is_zero) {
                (false, false) => PageState::Base,
                (false, true) => PageState::Zero,
                (true, false) if hugetlb => PageState::Hugetlb,
                (true, false) => PageState::Thp,
                (true, true) => PageState::HugeZero,
            };
            let last = seen.end_page.min(end);
            pages[(seen.first_page - first) as usize..(last - first) as usize].fill(Some(state));
            self.pending =
                if seen.end_page > end { Some(PresentPages { first_page: end, ..seen }) } else { self.scan.next() };
        }
        Some(pages)
    }
}
