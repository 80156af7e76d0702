//! Memory by call site: allocated, live at the peak, live at the end.

use crate::error::TraceError;
use crate::event::{Event, ObjectId, Op, SiteId};
use crate::info::sizes::bytes_max;
use crate::source::EventSource;
use serde::Serialize;
use std::collections::BTreeMap;

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
        let mut uses = grouped(source, |site, _| site)?;
        for (site, used) in uses.iter_mut().enumerate() {
            used.site = site as u32;
        }
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

    /// The memory of each call site by requested size: the largest size of a bin as in
    /// [`SizeBin`](super::SizeBin), and the requests of the site in that bin. Sorted by site and size.
    ///
    /// Rewinds `source` and reads it twice.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn by_size(source: &mut dyn EventSource) -> Result<Vec<(u64, SiteUse)>, TraceError> {
        let mut groups: BTreeMap<(u32, u64), u32> = BTreeMap::new();
        let uses = grouped(source, |site, size| {
            // Group 0 is that of objects without an allocation.
            let next = groups.len() as u32 + 1;
            *groups.entry((site, bytes_max(size))).or_insert(next)
        })?;
        let used = |((site, bytes_max), group): ((u32, u64), u32)| {
            (bytes_max, SiteUse { site, ..uses.get(group as usize).copied().unwrap_or_default() })
        };
        Ok(groups.into_iter().map(used).collect())
    }
}

/// The memory of each group of requests, by its number. `group`: the group of a site's requests of a size.
fn grouped(source: &mut dyn EventSource, mut group: impl FnMut(u32, u64) -> u32) -> Result<Vec<SiteUse>, TraceError> {
    let peak = Pass::over(source, None, &mut group)?.peak_event;
    Ok(Pass::over(source, Some(peak), &mut group)?.uses)
}

#[derive(Clone, Copy, Default)]
struct Live {
    size: u64,
    group: u32,
}

#[derive(Default)]
struct Pass {
    /// By group. During the pass, `objects_at_end` and `bytes_at_end` are the objects and bytes that are live at the
    /// current event.
    uses: Vec<SiteUse>,
    live: Vec<Live>,
    live_bytes: u64,
    peak_bytes: u64,
    /// Number of events up to the first peak.
    peak_event: u64,
}

impl Pass {
    fn over(
        source: &mut dyn EventSource,
        peak: Option<u64>,
        group: &mut impl FnMut(u32, u64) -> u32,
    ) -> Result<Pass, TraceError> {
        source.rewind()?;
        // A site number that the footer does not have comes from damage. It must not determine the size of a table.
        let known = source.footer().sites.stacks.len() as u32;
        let mut pass = Pass { live: vec![Live::default(); source.summary().objects_peak as usize], ..Pass::default() };
        let mut events = 0;
        while let Some(batch) = source.next_batch()? {
            for event in batch {
                let site = if event.site.0 <= known { event.site } else { SiteId::UNKNOWN };
                pass.add(event, |size| group(site.0, size));
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
        for used in &mut self.uses {
            (used.objects_at_peak, used.bytes_at_peak) = (used.objects_at_end, used.bytes_at_end);
        }
    }

    fn used(&mut self, group: u32) -> &mut SiteUse {
        let groups = self.uses.len().max(group as usize + 1);
        self.uses.resize(groups, SiteUse::default());
        &mut self.uses[group as usize]
    }

    fn add(&mut self, event: &Event, group: impl FnOnce(u64) -> u32) {
        match event.op {
            Op::Alloc { object, size, .. } | Op::ReallocUnknown { object, size, .. } => {
                self.allocate(object, Live { size, group: group(size) }, size);
            }
            Op::Realloc { object, size, .. } => {
                let before = self.free(object).size;
                self.allocate(object, Live { size, group: group(size) }, size.saturating_sub(before));
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => {
                self.free(object);
            }
            _ => (),
        }
    }

    fn allocate(&mut self, object: ObjectId, live: Live, added: u64) {
        let used = self.used(live.group);
        used.calls += 1;
        used.allocated_bytes = used.allocated_bytes.saturating_add(added);
        used.objects_at_end += 1;
        used.bytes_at_end = used.bytes_at_end.saturating_add(live.size);
        self.live_bytes = self.live_bytes.saturating_add(live.size);
        if let Some(place) = self.live.get_mut(object.0 as usize) {
            *place = live;
        }
    }

    fn free(&mut self, object: ObjectId) -> Live {
        let live = self.live.get(object.0 as usize).copied().unwrap_or_default();
        let used = self.used(live.group);
        used.objects_at_end = used.objects_at_end.saturating_sub(1);
        used.bytes_at_end = used.bytes_at_end.saturating_sub(live.size);
        self.live_bytes = self.live_bytes.saturating_sub(live.size);
        live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{RandomMixed, Workload};

    #[test]
    fn the_sizes_of_a_site_add_up_to_the_site() {
        let workload = Workload::RandomMixed(RandomMixed { cycles: 5_000, ..RandomMixed::default() });
        let mut source = workload.source().expect("a workload");
        let sites = SiteUse::of(&mut *source, SiteOrder::Bytes).expect("sites");
        let by_size = SiteUse::by_size(&mut *source).expect("sites by size");
        assert!(by_size.len() > 3, "several ranges of sizes");
        assert!(by_size.is_sorted_by_key(|(bytes_max, used)| (used.site, *bytes_max)));
        for site in sites {
            let parts = || by_size.iter().filter(|(_, used)| used.site == site.site);
            let sum = |figure: fn(&SiteUse) -> u64| parts().map(|(_, used)| figure(used)).sum::<u64>();
            let figures: [fn(&SiteUse) -> u64; 4] =
                [|used| used.calls, |used| used.bytes_at_peak, |used| used.bytes_at_end, |used| used.objects_at_end];
            assert_eq!(figures.map(sum), figures.map(|figure| figure(&site)));
            assert!(parts().all(|(bytes_max, used)| used.bytes_at_end <= used.objects_at_end * bytes_max));
        }
    }
}
