//! Observes an allocator's pages: scans before and after each system call, and at marks.
//!
//! Between two scans the heap only grows, because only system calls remove pages. The peaks are therefore exact.

use std::io;
use std::ops::Range;

use hksim_engine::{PageRun, PageState, Region};
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};

use crate::classify::{Cause, InstallClassifier, Unclassified};
use crate::extents::{Extent, Extents};
use crate::folios::Folios;
use crate::fork::keep_apart;
use crate::fork_frames::{Changed, ForkFrames};
use crate::page_snapshot::{ABSENT, FRAME_PAGES, Frame, PageSnapshot};
use crate::result::Mark;
use crate::split_folios::SplitFolios;
use crate::usage::Usage;
use crate::window::WindowObserver;
use hksim_linux_probe::modes::ModeFiles;
use hksim_linux_probe::pagemap::{PageMap, PagesSeen, PresentPages};
use hksim_linux_probe::procfs::ProcText;
use hksim_linux_probe::resident::Resident;
use hksim_linux_probe::traps::TrapStream;

/// The peaks so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    pub(crate) rss_bytes: u64,
    pub(crate) hugetlb_bytes: u64,
    pub(crate) vmas: u64,
    pub(crate) page_table_bytes: u64,
}

/// The observer's own cost inside the window, when its tables grew.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnCost {
    pub(crate) faults: u64,
    pub(crate) page_table_bytes: u64,
}

/// Maximum number of observed frames outside the reservation: 256 GiB.
const OTHER_FRAMES_MAX: usize = 128 << 10;
/// Maximum number of kernel-chosen mapping addresses to keep.
const KERNEL_CHOSEN_MAX: usize = 256 << 10;

/// Observes the pages of one allocator.
pub(crate) struct Observer {
    extent: Extent,
    base_page: u64,
    reserved_pages: u64,
    /// The allocator's memory: its reservation, and the separate mappings of SuperSlabs.
    ours: Extents,
    /// Addresses that the kernel chose for the separate mappings.
    kernel_chosen: Resident<u64>,
    kernel_chosen_count: usize,
    traps: Option<TrapStream>,
    trapped: Resident<u64>,
    page_map: PageMap,
    maps: ProcText,
    smaps: ProcText,
    modes: ModeFiles,
    modes_before: u64,
    /// Number of marks at which a THP mode or a limit of the machine differed from the start.
    marks_modes_changed: u64,
    vmas_outside_heap: Option<u64>,
    status: ProcText,
    folios: Folios,
    /// Number of populating calls that took fewer faults than pages and whose folios are unknown.
    folios_unknown: u64,
    /// 1 for each frame of the reservation in which hugetlb pages are mapped.
    hugetlb: Resident<u8>,
    page_table_bytes_start: u64,
    /// The page frames shared at the last fork, if any.
    fork_frames: Option<ForkFrames>,
    split_folios: SplitFolios,
    pub(crate) snapshot: PageSnapshot,
    pub(crate) classifier: InstallClassifier,
    pub(crate) peaks: Peaks,
    pub(crate) own: OwnCost,
}

impl Observer {
    /// An observer of memory of this extent. `traps` is `None` if the kernel does not provide them.
    pub(crate) fn new(extent: Extent, traps: Option<TrapStream>) -> io::Result<Observer> {
        let frames = extent.bytes().div_ceil(HUGE_PAGE_BYTES) as usize;
        // Without an arena, each SuperSlab has a separate mapping, and its metadata may be unmapped and mapped again.
        let (others_max, kernel_chosen_max, extents_max) = match extent {
            Extent::Reservation(_) => (0, 0, 4 << 10),
            Extent::WithMappings(_) => (OTHER_FRAMES_MAX, KERNEL_CHOSEN_MAX, 64 << 10),
            Extent::Region => (0, 0, Region::RANGES_MAX),
        };
        Ok(Observer {
            extent,
            base_page: 0,
            reserved_pages: extent.bytes() / PAGE_BYTES,
            ours: Extents::new(extents_max)?,
            kernel_chosen: Resident::zeroed(kernel_chosen_max)?,
            kernel_chosen_count: 0,
            trapped: Resident::zeroed(traps.as_ref().map_or(0, TrapStream::capacity))?,
            traps,
            page_map: PageMap::open()?,
            maps: ProcText::open("/proc/self/maps")?,
            smaps: ProcText::open("/proc/self/smaps")?,
            modes: ModeFiles::open(),
            modes_before: 0,
            marks_modes_changed: 0,
            vmas_outside_heap: None,
            status: ProcText::open("/proc/self/status")?,
            hugetlb: Resident::zeroed(frames)?,
            page_table_bytes_start: 0,
            fork_frames: None,
            folios: Folios::new(),
            folios_unknown: 0,
            split_folios: SplitFolios::new(frames)?,
            snapshot: PageSnapshot::new(frames, others_max)?,
            classifier: InstallClassifier::new(),
            peaks: Peaks::default(),
            own: OwnCost::default(),
        })
    }

    /// Sets the address of the reservation. Traps on it may already be queued.
    pub(crate) fn locate(&mut self, base: u64) {
        self.ours.add(base / PAGE_BYTES..base / PAGE_BYTES + self.reserved_pages);
        self.locate_region(base);
    }

    /// Sets the address of a region in which nothing is mapped yet.
    pub(crate) fn locate_region(&mut self, base: u64) {
        self.base_page = base / PAGE_BYTES;
        self.snapshot.locate(base / HUGE_PAGE_BYTES);
        let ours = self.note_vmas();
        // The vsyscall page in the kernel's half is listed, but is not a mapping of the process.
        let all = self.maps.maps_where(|map| map.start < 1 << 63);
        self.vmas_outside_heap = all.map(|all| all.saturating_sub(ours));
    }

    /// Mappings of the process outside the allocator. Their number is constant during the measurement.
    pub(crate) fn vmas_outside_heap(&self) -> Option<u64> {
        self.vmas_outside_heap
    }

    /// Number of marks at which the machine's THP modes or limits differed from the start.
    pub(crate) fn marks_modes_changed(&self) -> u64 {
        self.marks_modes_changed
    }

    /// Notes a mapping at an address that the kernel chose.
    pub(crate) fn mapped_anywhere(&mut self, start: u64, bytes: u64) {
        if let Some(given) = self.kernel_chosen.get_mut(self.kernel_chosen_count) {
            *given = start;
        }
        self.kernel_chosen_count += 1;
        self.mapped(start, bytes, false);
    }

    /// The addresses that the kernel chose for mappings, in order; `None` if there were too many.
    pub(crate) fn kernel_chosen(&self) -> Option<&[u64]> {
        self.kernel_chosen.get(..self.kernel_chosen_count)
    }

    /// Ranges of addresses that were not observed because there were too many mappings outside the reservation.
    pub(crate) fn left_out(&self) -> u64 {
        match self.extent {
            Extent::Reservation(_) => 0,
            Extent::WithMappings(_) | Extent::Region => self.ours.left_out(),
        }
    }

    /// Removes a range from the allocator's memory.
    pub(crate) fn unmapped(&mut self, start: u64, bytes: u64) {
        self.ours.remove(pages_at(start, bytes));
    }

    /// The trap stream.
    pub(crate) fn traps(&self) -> Option<&TrapStream> {
        self.traps.as_ref()
    }

    /// Number of populating calls whose folios are unknown.
    pub(crate) fn folios_unknown(&self) -> u64 {
        self.folios_unknown
    }

    /// Scans that the kernel aborted.
    pub(crate) fn scan_failures(&self) -> u64 {
        self.page_map.failures()
    }

    /// Classifies the program's traps since the last scan.
    pub(crate) fn look(&mut self) {
        match self.traps.as_ref() {
            None => (0..self.ours.len()).for_each(|at| self.rescan(self.ours.get(at), Cause::Unseen)),
            Some(traps) if traps.waiting_bytes() == 0 => return,
            Some(_) => self.look_at_traps(),
        }
        self.note_resident();
    }

    fn look_at_traps(&mut self) {
        let mut count = 0;
        if let Some(traps) = &mut self.traps {
            traps.drain(|address| {
                let page = address / PAGE_BYTES;
                if self.ours.contains(page) && count < self.trapped.len() {
                    self.trapped[count] = page;
                    count += 1;
                }
            });
        }
        self.trapped[..count].sort_unstable();
        let mut next = 0;
        while next < count {
            let frame = self.trapped[next] / FRAME_PAGES as u64;
            let mut on_pages = [0u8; FRAME_PAGES];
            while next < count && self.trapped[next] / FRAME_PAGES as u64 == frame {
                let on_page = &mut on_pages[self.trapped[next] as usize % FRAME_PAGES];
                *on_page = on_page.saturating_add(1);
                next += 1;
            }
            match self.changed(frame) {
                None => self.rescan(pages_of(frame), Cause::Ran(&on_pages)),
                Some(changed) => self.rescan(pages_of(frame), Cause::RanForked(&on_pages, &changed)),
            }
        }
    }

    /// Scans the frames of these pages, and classifies the changes.
    fn rescan(&mut self, pages: Range<u64>, cause: Cause<'_>) {
        let frames = frames_of(&pages);
        let ours = self.ours.within(pages_of(frames.start).start..pages_of(frames.end).start);
        let mut frames_seen = FramesSeen::new(self.page_map.scan_each(ours));
        for frame in frames {
            let first_page = pages_of(frame).start;
            let hugetlb = is_hugetlb(&self.snapshot, &self.hugetlb, frame);
            let after = frames_seen.frame(frame, hugetlb);
            if after.is_none() && !self.snapshot.is_known(frame) {
                if matches!(cause, Cause::Ran(_) | Cause::RanForked(..)) {
                    self.classifier.classify(first_page, &ABSENT, &ABSENT, cause);
                }
                continue;
            }
            let after = after.unwrap_or(ABSENT);
            let parts;
            let cause = match cause {
                Cause::Populated(_) => {
                    parts = self.folios.parts(first_page);
                    Cause::Populated(parts.as_ref())
                }
                other => other,
            };
            self.classifier.classify(first_page, self.snapshot.frame(frame), &after, cause);
            if self.snapshot.is_full() {
                grow(&mut self.snapshot, &mut self.status, &mut self.own);
            }
            self.snapshot.set(frame, &after);
        }
    }

    /// Prepares for a system call. The peaks must include the pages that the call may remove.
    pub(crate) fn before_call(&mut self) {
        self.look();
        self.note_page_tables();
    }

    /// Observes a call that installs no pages in the range.
    pub(crate) fn after_call(&mut self, start: u64, bytes: u64) {
        self.rescan(pages_at(start, bytes), Cause::Called);
        self.note_resident();
    }

    /// Observes `MADV_FREE`. It splits huge pages that are only partly in the range. The zero page replaces their
    /// zero-filled pages (R10), even those in another frame.
    pub(crate) fn after_free(&mut self, start: u64, bytes: u64) {
        let pages = pages_at(start, bytes);
        if self.split_folios.overlaps(&pages) {
            (0..self.split_folios.len()).for_each(|at| self.rescan(self.split_folios.get(at), Cause::Called));
        }
        self.after_call(start, bytes);
    }

    /// Observes a call that collapsed present pages into huge pages.
    pub(crate) fn after_collapse(&mut self, start: u64, bytes: u64) {
        self.rescan(pages_at(start, bytes), Cause::Collapsed);
        // A collapse copies its pages: none of them is still shared, and none was copied by a fault.
        self.note_shared(frames_of(&pages_at(start, bytes)));
        self.note_resident();
    }

    /// Observes a call that populated a range; `faults` is the number that the kernel charged.
    pub(crate) fn after_populate(&mut self, start: u64, bytes: u64, faults: u64) {
        let before = self.classifier.installs;
        self.count_copied(&pages_at(start, bytes));
        self.rescan(pages_at(start, bytes), Cause::Populated(None));
        let mut installed = self.classifier.installs.total() - before.total();
        if is_hugetlb(&self.snapshot, &self.hugetlb, frames_of(&pages_at(start, bytes)).start) {
            // Every fault on a hugetlb page counts as an install: the first fault, the first write after reads, and a
            // copy.
            self.classifier.installs.hugetlb += faults.saturating_sub(installed);
            installed = installed.max(faults);
        }
        // After a fork, the other faults only restored write permission.
        let faults = if self.fork_frames.is_some() { faults.min(installed) } else { faults };
        let folio_pages = if let Folios::OneSize(pages) = self.folios { Some(pages) } else { None };
        if matches!(self.folios, Folios::Ambiguous) && installed > faults {
            self.folios_unknown += 1;
        } else if !self.classifier.join_populated(&before, faults, folio_pages) {
            let page = start / PAGE_BYTES;
            self.classifier.reject(Unclassified { page, before: None, after: None, traps: faults });
        }
        self.note_resident();
    }

    /// Observes a new mapping of a range. All earlier pages are gone, and any present pages are new.
    pub(crate) fn mapped(&mut self, start: u64, bytes: u64, hugetlb: bool) {
        let pages = pages_at(start, bytes);
        self.ours.add(pages.clone());
        self.split_folios.forget(&pages);
        for frame in frames_of(&pages) {
            let whole = pages_of(frame);
            let part = pages.start.max(whole.start) - whole.start..pages.end.min(whole.end) - whole.start;
            self.snapshot.forget(frame, part.start as usize..part.end as usize);
            if let Some(at) = self.snapshot.in_reservation(frame) {
                self.hugetlb[at] = u8::from(hugetlb);
            }
        }
    }

    /// Observes a move of page tables. The target must have as many pages as the source had.
    pub(crate) fn moved(&mut self, from: u64, to: u64, bytes: u64) {
        // The move unmapped the pages at the target.
        self.mapped(to, bytes, false);
        let before = self.snapshot.counts();
        self.unmapped(from, bytes);
        self.split_folios.moved(pages_at(from, bytes), pages_at(to, bytes));
        self.rescan(pages_at(from, bytes), Cause::Unseen);
        self.rescan(pages_at(to, bytes), Cause::Unseen);
        let after = self.snapshot.counts();
        self.note_shared(frames_of(&pages_at(to, bytes)));
        if before.resident_bytes() != after.resident_bytes() {
            let page = to / PAGE_BYTES;
            self.classifier.reject(Unclassified { page, before: None, after: None, traps: 0 });
        }
        self.note_resident();
    }

    fn note_resident(&mut self) {
        let counts = self.snapshot.counts();
        self.peaks.rss_bytes = self.peaks.rss_bytes.max(counts.resident_bytes());
        self.peaks.hugetlb_bytes = self.peaks.hugetlb_bytes.max(counts.pages(PageState::Hugetlb) * PAGE_BYTES);
    }

    /// Counts the allocator's VMAs.
    pub(crate) fn note_vmas(&mut self) -> u64 {
        let vmas = self.maps.maps_where(is_among(&self.ours)).unwrap_or(0);
        self.peaks.vmas = self.peaks.vmas.max(vmas);
        vmas
    }

    /// Bytes of the process's page tables at the start of the window.
    pub(crate) fn page_table_bytes_start(&self) -> u64 {
        self.page_table_bytes_start
    }

    fn lazy_free_bytes(&mut self) -> Option<u64> {
        self.smaps.sum_where("LazyFree:", is_among(&self.ours)).map(|kilobytes| kilobytes * 1024)
    }

    fn page_tables(&mut self) -> u64 {
        self.status.number("VmPTE:").unwrap_or(0) * 1024
    }

    fn note_page_tables(&mut self) -> u64 {
        let own = self.page_table_bytes_start + self.own.page_table_bytes;
        let bytes = self.page_tables().saturating_sub(own);
        self.peaks.page_table_bytes = self.peaks.page_table_bytes.max(bytes);
        bytes
    }

    /// Begins a mark: a scan of all memory, which is compared with the snapshot. Pass each mapped range to
    /// [`Observer::mark_piece`], in the order of their names, then call [`Observer::end_mark`].
    pub(crate) fn begin_mark(&mut self, events: u64) -> Mark {
        self.look();
        Mark { event: events, rss_bytes: Some(0), ..Mark::default() }
    }

    /// Scans a range of pages for a mark. Calls `each` with every present page, under its name: its number from the start
    /// of the allocator's memory. `name` is that of the first page.
    pub(crate) fn mark_piece(
        &mut self,
        mark: &mut Mark,
        (name, pages): (u64, Range<u64>),
        mut each: impl FnMut(PageRun),
    ) {
        let mut seen = FramesSeen::new(self.page_map.scan(pages.start, pages.end));
        for frame in frames_of(&pages) {
            let hugetlb = is_hugetlb(&self.snapshot, &self.hugetlb, frame);
            let now = seen.frame(frame, hugetlb);
            if now.is_none() && !self.snapshot.is_known(frame) {
                continue;
            }
            let (now, snapshot) = (now.unwrap_or(ABSENT), self.snapshot.frame(frame));
            let whole = pages_of(frame);
            for page in pages.start.max(whole.start)..pages.end.min(whole.end) {
                let at = (page - whole.start) as usize;
                mark.inconsistent_pages += u64::from(snapshot[at] != now[at]);
                if let Some(state) = now[at] {
                    let resident_bytes = if state.is_resident() { PAGE_BYTES } else { 0 };
                    mark.rss_bytes = mark.rss_bytes.map(|bytes| bytes + resident_bytes);
                    each(PageRun { first_page: name + (page - pages.start), pages: 1, state });
                }
            }
        }
    }

    /// Ends a mark.
    pub(crate) fn end_mark(&mut self, mark: Mark) -> Mark {
        let (vmas, page_table_bytes) = (self.note_vmas(), self.note_page_tables());
        self.marks_modes_changed += u64::from(self.modes.digest() != self.modes_before);
        Mark {
            vmas: Some(vmas),
            page_table_bytes: Some(page_table_bytes),
            lazy_free_bytes: self.lazy_free_bytes(),
            ..mark
        }
    }
}

/// Observation after a fork.
impl Observer {
    /// Prepares for a fork: classifies all changes so far, and notes the page frames that the child will share.
    pub(crate) fn before_fork(&mut self) -> io::Result<()> {
        self.look();
        let (base, bytes) = (self.base_page * PAGE_BYTES, self.reserved_pages * PAGE_BYTES);
        self.uncounted(|observer| {
            let mut fork_frames = ForkFrames::new();
            let frames = frames_of(&(observer.base_page..observer.base_page + observer.reserved_pages));
            for frame in frames.filter(|&frame| observer.snapshot.is_known(frame)) {
                fork_frames.note(&observer.page_map, frame, pages_of(frame).start);
            }
            observer.fork_frames = Some(fork_frames);
            keep_apart(base, bytes)
        })
    }

    /// Whether copies can be distinguished from faults that only restored write permission.
    pub(crate) fn detects_copies(&self) -> bool {
        self.fork_frames.as_ref().is_none_or(ForkFrames::are_readable)
    }

    /// Runs a function whose faults are the observer's own, and excludes them from the measurement.
    fn uncounted<T>(&mut self, run: impl FnOnce(&mut Observer) -> T) -> T {
        self.traps.iter().for_each(|traps| traps.counter().disable());
        let (faults, tables) = (Usage::now().faults, self.page_tables());
        let result = run(self);
        self.own.faults += Usage::now().faults - faults;
        self.own.page_table_bytes += self.page_tables().saturating_sub(tables);
        self.traps.iter().for_each(|traps| traps.counter().enable());
        result
    }

    /// The pages of a frame that were copied since its last check; `None` if there was no fork.
    fn changed(&mut self, frame: u64) -> Option<Changed> {
        Some(self.fork_frames.as_mut()?.changed(&self.page_map, frame, pages_of(frame).start))
    }

    /// Counts the pages of a range that were present before a populating call and that it copied. Call it before the
    /// scan.
    fn count_copied(&mut self, pages: &Range<u64>) {
        for frame in frames_of(pages) {
            if !self.snapshot.is_known(frame) {
                continue;
            }
            let Some(changed) = self.changed(frame) else { return };
            let was_there = pages_of(frame)
                .zip(self.snapshot.frame(frame))
                // If the call split a huge page, single pages of it are copied.
                .map(|(page, &state)| pages.contains(&page) && matches!(state, Some(PageState::Base | PageState::Thp)));
            let copied = was_there.zip(changed).filter(|&(was_there, changed)| was_there && changed).count();
            self.classifier.installs.cow += copied as u64;
        }
    }

    /// Notes the current page frames of these frames, if there was a fork.
    fn note_shared(&mut self, frames: Range<u64>) {
        let Some(mut fork_frames) = self.fork_frames.take() else { return };
        self.uncounted(|observer| {
            for frame in frames {
                fork_frames.note(&observer.page_map, frame, pages_of(frame).start);
            }
            observer.fork_frames = Some(fork_frames);
        });
    }
}

impl WindowObserver for Observer {
    fn begin(&mut self) {
        // An unfinished folio batch holds references to its pages, and only its own processor can drain it.
        hksim_linux_probe::processor::pin_to_current_processor();
        self.modes_before = self.modes.digest();
        self.page_table_bytes_start = self.page_tables();
        self.traps.iter().for_each(|traps| traps.counter().enable());
    }

    /// Reads the traps if the ring is half full, so that long periods without a system call lose none.
    fn drain_traps_if_half_full(&mut self) {
        if self.traps.as_ref().is_some_and(|traps| traps.waiting_bytes() * 2 > traps.capacity() as u64 * 16) {
            self.look();
        }
    }

    fn mark(&mut self, events: u64) -> Mark {
        let reservation = self.base_page..self.base_page + self.reserved_pages;
        let mut mark = self.begin_mark(events);
        self.mark_piece(&mut mark, (0, reservation), |_| {});
        self.end_mark(mark)
    }

    fn end(&mut self) -> Option<u64> {
        self.look();
        let traps = self.traps.as_ref()?;
        traps.counter().disable();
        Some(traps.counter().count())
    }
}

/// Grows the snapshot, and counts the faults that this causes.
#[cold]
fn grow(snapshot: &mut PageSnapshot, status: &mut ProcText, own: &mut OwnCost) {
    let (faults, tables) = (Usage::now().faults, status.number("VmPTE:"));
    if snapshot.grow().is_err() {
        // The snapshot already covers 16 TiB, which is more than the machine's memory.
        return;
    }
    own.faults += Usage::now().faults - faults;
    own.page_table_bytes += (status.number("VmPTE:").unwrap_or(0) - tables.unwrap_or(0)) * 1024;
}

/// Whether a frame is known to have hugetlb pages.
fn is_hugetlb(snapshot: &PageSnapshot, hugetlb: &[u8], frame: u64) -> bool {
    snapshot.in_reservation(frame).is_some_and(|at| hugetlb[at] != 0)
}

fn pages_at(start: u64, bytes: u64) -> Range<u64> {
    start / PAGE_BYTES..(start + bytes) / PAGE_BYTES
}

/// Returns a function that reports whether a mapping has pages of `extents`.
fn is_among(extents: &Extents) -> impl Fn(Range<u64>) -> bool {
    |map| extents.overlaps(&(map.start / PAGE_BYTES..map.end / PAGE_BYTES))
}

/// The frames of a range of pages.
fn frames_of(pages: &Range<u64>) -> Range<u64> {
    pages.start / FRAME_PAGES as u64..pages.end.div_ceil(FRAME_PAGES as u64)
}

fn pages_of(frame: u64) -> Range<u64> {
    frame * FRAME_PAGES as u64..(frame + 1) * FRAME_PAGES as u64
}

/// A scan, divided into frames.
struct FramesSeen<'a, I: Iterator<Item = Range<u64>>> {
    scan: PagesSeen<'a, I>,
    pending: Option<PresentPages>,
}

impl<'a, I: Iterator<Item = Range<u64>>> FramesSeen<'a, I> {
    fn new(mut scan: PagesSeen<'a, I>) -> FramesSeen<'a, I> {
        let pending = scan.next();
        FramesSeen { scan, pending }
    }

    /// The pages of a frame, or `None` if none is present. Frames must be requested in ascending order.
    fn frame(&mut self, frame: u64, hugetlb: bool) -> Option<Frame> {
        let Range { start: first, end } = pages_of(frame);
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
