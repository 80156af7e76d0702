//! Inserts the touches of watched objects between the calls of their program.
//!
//! An address of a watched object is never reused, so each page belongs to one object. Calls and faults have different
//! clocks, but a touch is always placed between its object's allocation and its free, regardless of its timestamp.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use hksim_trace::event::{Access, AllocCall, InitialTouch};
use hksim_trace::header::Watched as Counts;
use hksim_trace::profile::SiteProfile;
use hksim_trace::resolve::{RawEvent, RawOp};

use crate::clock::TickRate;
use crate::error::RecordError;
use crate::log_reader::LogReader;
use crate::pages::image::{ImagePages, PageEnd, SeenFault};
use crate::pages::neighbours::Neighbours;
use crate::pages::object::{PageSeen, Watched};
use crate::touched::PAGE_BYTES;

/// Largest assumed difference between the two clocks. Faults are read this far ahead of the calls.
const SLACK_NS: u64 = 20_000;

/// Site, size class, and whether the objects are zeroed.
type ProfileKey = (u32, u64, bool);

/// Inserts touches between events.
pub struct PageTouches {
    log: Arc<LogReader>,
    pages: ImagePages,
    /// The next fault, read but not yet due.
    next: Option<SeenFault>,
    /// Faults up to [`SLACK_NS`] ahead of the events.
    ahead: VecDeque<SeenFault>,
    /// Faults on objects whose allocation has not been seen yet.
    early: Vec<SeenFault>,
    /// Live watched objects by address.
    live: BTreeMap<u64, Watched>,
    neighbours: Neighbours,
    profiles: HashMap<ProfileKey, SiteProfile>,
    counts: Counts,
    /// Time of the last event or touch.
    last_ns: u64,
    /// Number of the program's forks so far.
    forks: u32,
}

impl PageTouches {
    /// The touches of the log's image; `None` if it has no watched pages.
    ///
    /// # Errors
    /// A file of the touches cannot be read.
    pub fn open(log: &Arc<LogReader>, rate: TickRate) -> Result<Option<Self>, RecordError> {
        let Some(mut pages) = ImagePages::open(log.path(), &log.control, rate)? else {
            return Ok(None);
        };
        let next = pages.next_fault();
        let counts =
            Counts { turned_down: pages.turned_down(), faults_lost: pages.seen.faults_lost, ..Counts::default() };
        let (ahead, early, live, profiles) = (VecDeque::new(), Vec::new(), BTreeMap::new(), HashMap::new());
        let neighbours = Neighbours::default();
        Ok(Some(Self {
            log: Arc::clone(log),
            pages,
            next,
            ahead,
            early,
            live,
            neighbours,
            profiles,
            counts,
            last_ns: 0,
            forks: 0,
        }))
    }

    /// Passes the event to `each`, together with the touches that come before and after it.
    ///
    /// # Errors
    /// A file of the touches cannot be read, or `each` failed.
    pub fn pass(
        &mut self,
        raw: RawEvent,
        mut each: impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        self.look_ahead(raw.time_ns);
        self.touch_until(raw.time_ns, &mut each)?;
        self.last_ns = self.last_ns.max(raw.time_ns);
        if let RawOp::Alloc { size, .. } | RawOp::Realloc { old: 0, size, .. } = raw.op
            && size < PAGE_BYTES
        {
            self.neighbours.note(raw.thread, size);
        }
        match raw.op {
            RawOp::Alloc { address, size, call, .. } if self.pages.is_watched(address) => {
                let zeroed = call == AllocCall::Calloc;
                self.allocate(raw, address, Watched::new(address, size, zeroed, raw.site, raw.thread), &mut each)
            }
            RawOp::Realloc { old: 0, new, size, .. } if self.pages.is_watched(new) => {
                self.allocate(raw, new, Watched::new(new, size, false, raw.site, raw.thread), &mut each)
            }
            RawOp::Free { address } if self.live.contains_key(&address) => {
                if let Some(object) = self.free(address, raw.time_ns, &mut each)? {
                    self.note(&object);
                }
                each(raw)
            }
            RawOp::Realloc { old, new, size, .. } if new != 0 || size == 0 => {
                self.resize(raw, (old, new), size, &mut each)
            }
            RawOp::Fork { .. } => {
                self.forks = self.forks.saturating_add(1);
                each(raw)
            }
            _ => each(raw),
        }
    }

    /// Passes the touches up to `time_ns` to `each`. For use before an event that is not a call.
    ///
    /// # Errors
    /// As for [`PageTouches::pass`].
    pub fn pass_until(
        &mut self,
        time_ns: u64,
        mut each: impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        self.look_ahead(time_ns);
        self.touch_until(time_ns, &mut each)?;
        self.last_ns = self.last_ns.max(time_ns);
        Ok(())
    }

    /// Passes the touches after the last event to `each`. Returns the profiles, and the counts that describe the
    /// quality of the capture.
    ///
    /// # Errors
    /// A file of the touches cannot be read.
    pub fn finish(
        mut self,
        mut each: impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(Vec<SiteProfile>, Counts), RecordError> {
        while self.next.is_some() || !self.ahead.is_empty() {
            let time_ns = self.ahead.front().or(self.next.as_ref()).map_or(self.last_ns, |fault| fault.time_ns);
            self.last_ns = self.last_ns.max(time_ns);
            self.look_ahead(self.last_ns);
            self.touch_until(self.last_ns, &mut each)?;
        }
        let addresses: Vec<u64> = self.live.keys().copied().collect();
        for address in addresses {
            self.touch_unseen(address, self.last_ns, &mut each)?;
        }
        for object in std::mem::take(&mut self.live).values() {
            self.note(object);
        }
        let mut profiles: Vec<SiteProfile> = self.profiles.into_values().collect();
        profiles.sort_by_key(SiteProfile::key);
        Ok((profiles, self.counts))
    }

    /// Reads the faults that may precede an event at `time_ns`.
    fn look_ahead(&mut self, time_ns: u64) {
        while let Some(fault) = self.next.take_if(|fault| fault.time_ns <= time_ns.saturating_add(SLACK_NS)) {
            self.ahead.push_back(fault);
            self.next = self.pages.next_fault();
        }
        // Some faults never find their object, such as faults on blocks that a forked child inherited. Drop them.
        self.early.retain(|fault| fault.time_ns.saturating_add(SLACK_NS) >= time_ns);
    }

    /// Emits the touches up to `time_ns`.
    fn touch_until(
        &mut self,
        time_ns: u64,
        each: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        while let Some(&fault) = self.ahead.front().filter(|fault| fault.time_ns <= time_ns) {
            self.ahead.pop_front();
            if !self.touch(&fault, fault.time_ns, each)? {
                self.early.push(fault);
            }
        }
        Ok(())
    }

    /// Emits the touch of a fault; false if its object is not live.
    fn touch(
        &mut self,
        fault: &SeenFault,
        time_ns: u64,
        each: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<bool, RecordError> {
        let Some((&address, object)) = self.live.range_mut(..fault.page + PAGE_BYTES).next_back() else {
            return Ok(false);
        };
        let pages = object.page_range(address);
        if !pages.contains(&fault.page) {
            return Ok(false);
        }
        let number = ((fault.page - pages.start) / PAGE_BYTES) as usize;
        let access = match (fault.access, object.seen(number)) {
            (Some(access), _) => access,
            (None, PageSeen::Nothing) => self.pages.first_access(fault.page)?,
            (None, _) => Access::Write,
        };
        let neighbours = self.neighbours.made(object.thread, object.bytes());
        if object.see_fault(number, access, self.forks, neighbours) {
            self.counts.touches += 1;
            let thread = self.log.thread_of(fault.tid).unwrap_or(object.thread);
            each(RawEvent::new(time_ns, thread, object.touch(address, number, access)))?;
        }
        Ok(true)
    }

    /// Emits the allocation of a watched object, and its touches that are already known.
    fn allocate(
        &mut self,
        mut raw: RawEvent,
        address: u64,
        object: Watched,
        each: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let range = object.page_range(address);
        if !self.pages.is_timed() && self.is_unknown(&range)? {
            // Its touches are unknown. Like an unwatched object, it gets the touches of a profile.
            return each(raw);
        }
        if let RawOp::Alloc { initial_touch, .. } | RawOp::Realloc { initial_touch, .. } = &mut raw.op {
            *initial_touch = InitialTouch::Watched;
        }
        each(raw)?;
        self.counts.objects += 1;
        let tail = object.tail_of_written_page(address);
        let neighbours = self.neighbours.made(object.thread, object.bytes());
        self.live.insert(address, object.with_neighbours(neighbours));
        if let Some(touch) = tail {
            each(RawEvent::new(raw.time_ns, raw.thread, touch))?;
        }
        if !self.pages.is_timed() {
            return self.touch_unseen(address, raw.time_ns, each);
        }
        let (own, others) = std::mem::take(&mut self.early).into_iter().partition(|fault| range.contains(&fault.page));
        self.early = others;
        let own: Vec<SeenFault> = own;
        for fault in own {
            self.touch(&fault, raw.time_ns, each)?;
        }
        Ok(())
    }

    fn is_unknown(&self, range: &std::ops::Range<u64>) -> Result<bool, RecordError> {
        for page in range.clone().step_by(PAGE_BYTES as usize) {
            if self.pages.end_of(page)? == PageEnd::Unknown {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes an object that is freed at `time_ns`, after emitting its remaining touches.
    fn free(
        &mut self,
        address: u64,
        time_ns: u64,
        each: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<Option<Watched>, RecordError> {
        let Some(pages) = self.live.get(&address).map(|object| object.page_range(address)) else {
            return Ok(None);
        };
        self.touch_ahead(pages, time_ns, each)?;
        self.touch_unseen(address, time_ns, each)?;
        Ok(self.live.remove(&address))
    }

    /// Emits the faults on these pages whose timestamps are later than the faults can have occurred.
    fn touch_ahead(
        &mut self,
        range: std::ops::Range<u64>,
        time_ns: u64,
        each: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let (own, others) = std::mem::take(&mut self.ahead).into_iter().partition(|fault| range.contains(&fault.page));
        self.ahead = others;
        let own: VecDeque<SeenFault> = own;
        for fault in own {
            self.touch(&fault, time_ns, each)?;
        }
        Ok(())
    }

    /// Emits the touches that follow from the final states of an object's pages, but that no fault reported.
    fn touch_unseen(
        &mut self,
        address: u64,
        time_ns: u64,
        each: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let Some(object) = self.live.get_mut(&address) else {
            return Ok(());
        };
        for (number, page) in object.page_range(address).step_by(PAGE_BYTES as usize).enumerate() {
            let access = match self.pages.end_of(page)? {
                PageEnd::Read => Access::Read,
                PageEnd::Written => Access::Write,
                PageEnd::Untouched | PageEnd::Unknown => continue,
            };
            if object.see(number, access, None) {
                self.counts.touches += 1;
                self.counts.touches_untimed += 1;
                each(RawEvent::new(time_ns, object.thread, object.touch(address, number, access)))?;
            }
        }
        Ok(())
    }

    /// Emits a resize whose old block, new block or both are watched.
    fn resize(
        &mut self,
        raw: RawEvent,
        (old, new): (u64, u64),
        size: u64,
        each: &mut impl FnMut(RawEvent) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        // A resize in place frees only the pages that the object no longer needs.
        if old == new
            && let Some(object) = self.live.get(&old)
        {
            let end = object.page_range(old).end;
            let kept = end.min((old + size).next_multiple_of(PAGE_BYTES));
            self.touch_ahead(kept..end, raw.time_ns, each)?;
            return match self.live.remove(&old) {
                Some(object) => self.allocate(raw, new, object.resized(new, size), each),
                None => each(raw),
            };
        }
        let before = self.free(old, raw.time_ns, each)?;
        if new == 0
            && let Some(object) = &before
        {
            self.note(object);
        }
        if !self.pages.is_watched(new) {
            return each(raw);
        }
        // The recorder copies the contents, and its faults do not count. So pages keep the touches known before.
        let object =
            before.map_or_else(|| Watched::moved_in(new, size, raw.thread), |object| object.resized(new, size));
        self.allocate(raw, new, object, each)
    }

    /// Adds a freed object to its profiles.
    fn note(&mut self, object: &Watched) {
        for kind in object.profiles() {
            self.profiles.entry(kind.key()).or_insert(kind).count(object.initial_touch());
        }
    }
}
