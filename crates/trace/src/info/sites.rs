//! Memory by call site: allocated, live at the peak, live at the end.

use crate::error::TraceError;
use crate::event::{Event, ObjectId, Op, SiteId};
use crate::source::EventSource;
use serde::Serialize;

/// Memory of one call site. After a resize, a block belongs to the site of the resize. Calls are those that returned
/// memory; bytes are requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SiteUse {
    /// The site; 0 for all calls without a known site.
    pub site: u32,
    /// Calls.
    pub calls: u64,
    /// Bytes requested; for a resize, the bytes added.
    pub allocated_bytes: u64,
    /// Objects live at the trace's first peak of live bytes.
    pub objects_at_peak: u64,
    /// Bytes live at that peak.
    pub bytes_at_peak: u64,
    /// Objects never freed.
    pub objects_at_end: u64,
    /// Bytes never freed.
    pub bytes_at_end: u64,
}

/// The value by which call sites are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteOrder {
    /// [`SiteUse::allocated_bytes`].
    Bytes,
    /// [`SiteUse::calls`].
    Calls,
    /// [`SiteUse::bytes_at_peak`].
    Peak,
    /// [`SiteUse::bytes_at_end`].
    End,
}

impl SiteUse {
    /// The memory of all call sites that occur in the trace, largest first. Equal sites are sorted by number.
    ///
    /// Rewinds `source` and reads it twice: the first pass finds the peak.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn of(source: &mut dyn EventSource, order: SiteOrder) -> Result<Vec<SiteUse>, TraceError> {
        let peak = Pass::over(source, None)?.peak_event;
        let Pass { mut uses, .. } = Pass::over(source, Some(peak))?;
        uses.retain(|site| site.calls > 0);
        uses.sort_by_key(|site| {
            std::cmp::Reverse(match order {
                SiteOrder::Bytes => site.allocated_bytes,
                SiteOrder::Calls => site.calls,
                SiteOrder::Peak => site.bytes_at_peak,
                SiteOrder::End => site.bytes_at_end,
            })
        });
        Ok(uses)
    }
}

#[derive(Clone, Copy, Default)]
struct Live {
    size: u64,
    site: u32,
}

#[derive(Default)]
struct Pass {
    /// By site. During the pass, `objects_at_end` and `bytes_at_end` are the objects and bytes that are live at the
    /// current event.
    uses: Vec<SiteUse>,
    live: Vec<Live>,
    live_bytes: u64,
    peak_bytes: u64,
    /// Number of events up to the first peak.
    peak_event: u64,
}

impl Pass {
    fn over(source: &mut dyn EventSource, peak: Option<u64>) -> Result<Pass, TraceError> {
        source.rewind()?;
        // A site number that the footer does not have comes from damage. It must not determine the size of a table.
        let known = source.footer().sites.stacks.len() as u32;
        let mut pass = Pass { live: vec![Live::default(); source.summary().objects_peak as usize], ..Pass::default() };
        let mut events = 0;
        while let Some(batch) = source.next_batch()? {
            for event in batch {
                pass.add(event, if event.site.0 <= known { event.site } else { SiteId::UNKNOWN });
                events += 1;
                if pass.live_bytes > pass.peak_bytes {
                    (pass.peak_bytes, pass.peak_event) = (pass.live_bytes, events);
                }
                if peak == Some(events) {
                    pass.note_peak();
                }
            }
        }
        Ok(pass)
    }

    fn note_peak(&mut self) {
        for site in &mut self.uses {
            (site.objects_at_peak, site.bytes_at_peak) = (site.objects_at_end, site.bytes_at_end);
        }
    }

    fn site(&mut self, number: u32) -> &mut SiteUse {
        for site in self.uses.len() as u32..=number {
            self.uses.push(SiteUse { site, ..SiteUse::default() });
        }
        &mut self.uses[number as usize]
    }

    fn add(&mut self, event: &Event, site: SiteId) {
        match event.op {
            Op::Alloc { object, size, .. } | Op::ReallocUnknown { object, size, .. } => {
                self.allocate(object, Live { size, site: site.0 }, size);
            }
            Op::Realloc { object, size, .. } => {
                let before = self.free(object).size;
                self.allocate(object, Live { size, site: site.0 }, size.saturating_sub(before));
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => {
                self.free(object);
            }
            _ => (),
        }
    }

    fn allocate(&mut self, object: ObjectId, live: Live, added: u64) {
        let site = self.site(live.site);
        site.calls += 1;
        site.allocated_bytes = site.allocated_bytes.saturating_add(added);
        site.objects_at_end += 1;
        site.bytes_at_end = site.bytes_at_end.saturating_add(live.size);
        self.live_bytes = self.live_bytes.saturating_add(live.size);
        if let Some(place) = self.live.get_mut(object.0 as usize) {
            *place = live;
        }
    }

    fn free(&mut self, object: ObjectId) -> Live {
        let live = self.live.get(object.0 as usize).copied().unwrap_or_default();
        let site = self.site(live.site);
        site.objects_at_end = site.objects_at_end.saturating_sub(1);
        site.bytes_at_end = site.bytes_at_end.saturating_sub(live.size);
        self.live_bytes = self.live_bytes.saturating_sub(live.size);
        live
    }
}
