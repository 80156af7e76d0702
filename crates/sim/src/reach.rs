//! TLB reach of the live set over time, and TLB misses if every access is known.

use std::ops::Range;

use hksim_linux_mm::{Kernel, PAGE_BYTES, PMD_PAGES};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::miss_curves::MissCurves;
use crate::observer::Cause;
use crate::tlb::{Geometry, Hit, HitCounts, LiveMix, PageSize, Reach, TwoLevel};
use crate::translations::{Change, Translations, page_size};

/// Results for the data TLB of one core.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TlbReport {
    /// The core's geometry.
    #[serde(deserialize_with = "core_by_name")]
    pub core: &'static Geometry,
    /// Reach over the live set at evenly spaced points and at the end.
    pub reach: Vec<ReachSample>,
    /// Hits and misses; absent unless the trace records every access of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookups: Option<TlbLookups>,
    /// Misses of fully associative TLBs of every size; absent if `lookups` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss_curves: Option<MissCurves>,
    /// Why misses are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(default, deserialize_with = "reason_by_presence")]
    pub lookups_skipped: Option<SkipReason>,
}

/// A core from its JSON form. Only known cores are results, so the name is enough.
fn core_by_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static Geometry, D::Error> {
    #[derive(Deserialize)]
    struct Core {
        name: String,
    }
    let Core { name } = Core::deserialize(deserializer)?;
    Geometry::named(&name).ok_or_else(|| D::Error::custom(format!("`{name}` is not a core that hksim knows")))
}

/// Why a figure is absent. The alias keeps serde from borrowing the text from its input.
pub type SkipReason = &'static str;

/// The only reason why misses are absent.
pub(crate) const LOOKUPS_SKIPPED: &str = "the accesses of the program are not all known";

/// The reason, if there is one.
fn reason_by_presence<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'static str>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(|_| LOOKUPS_SKIPPED))
}

/// The live set at one point, and how much of it the TLB can map.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReachSample {
    /// Number of events performed so far.
    pub event: u64,
    /// Pages of live objects, by the size of the entry that maps them.
    pub live: LiveMix,
    /// Share of the live objects' 4 KiB pages that are mapped by huge pages, from 0 to 1.
    pub huge_coverage: f64,
    /// First level.
    pub l1: Reach,
    /// Second level.
    pub l2: Reach,
}

/// Hits and misses by source. A touch counts as one access per page, because immediately repeated accesses always hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbLookups {
    /// Accesses by the application.
    pub application: HitCounts,
    /// Accesses by the allocator: links, headers, metadata, zeroing, copying.
    pub allocator: HitCounts,
}

/// Not the number of a page.
const NO_PAGE: u64 = u64::MAX;

/// A TLB of a core, and fully associative TLBs of every size.
#[derive(Clone)]
pub(crate) struct TlbModels {
    tlb: TwoLevel,
    application: HitCounts,
    /// The page that was accessed last, if no mapping can have changed since; otherwise [`NO_PAGE`].
    last_page: u64,
    /// A range of 2 MiB and the size of its entries, likewise.
    last_size: Option<(u64, PageSize)>,
}

impl TlbModels {
    pub(crate) fn new(core: &Geometry) -> TlbModels {
        TlbModels {
            tlb: TwoLevel::new(core, &MissCurves::sizes()),
            application: HitCounts::default(),
            last_page: NO_PAGE,
            last_size: None,
        }
    }

    #[inline(never)]
    fn access_pages(&mut self, kernel: &Kernel, pages: Range<u64>, cause: Cause) {
        for page in pages {
            let size = match self.last_size {
                Some((range, size)) if range == page / PMD_PAGES => size,
                _ => page_size(kernel, page),
            };
            self.access(page, size, cause);
            (self.last_page, self.last_size) = (page, Some((page / PMD_PAGES, size)));
        }
    }
}

impl Translations for TlbModels {
    #[inline(always)]
    fn access(&mut self, page: u64, size: PageSize, cause: Cause) {
        let hit = self.tlb.access(page, size);
        if cause == Cause::Application {
            match hit {
                Hit::L1 => self.application.l1_hits += 1,
                Hit::L2 => self.application.l2_hits += 1,
                Hit::Miss => self.application.misses += 1,
            }
        }
    }

    #[inline(always)]
    fn access_bytes(&mut self, kernel: &Kernel, bytes: Range<u64>, cause: Cause) {
        let (first, last) = (bytes.start / PAGE_BYTES, (bytes.end - 1) / PAGE_BYTES);
        if first == last && first == self.last_page {
            self.tlb.access_again();
            self.application.l1_hits += u64::from(cause == Cause::Application);
        } else {
            self.access_pages(kernel, first..last + 1, cause);
        }
    }

    fn mappings_may_change(&mut self) {
        (self.last_page, self.last_size) = (NO_PAGE, None);
    }

    fn changed(&mut self, pages: &Range<u64>, _by: Change) {
        self.tlb.invalidate(pages.clone());
    }

    fn lookups(&self) -> Option<TlbLookups> {
        let allocator = less(self.tlb.counts(), self.application);
        Some(TlbLookups { application: self.application, allocator })
    }

    fn miss_curves(&self) -> Option<MissCurves> {
        Some(MissCurves::of(self.tlb.stacks()))
    }
}

fn less(all: HitCounts, part: HitCounts) -> HitCounts {
    HitCounts {
        l1_hits: all.l1_hits - part.l1_hits,
        l2_hits: all.l2_hits - part.l2_hits,
        misses: all.misses - part.misses,
    }
}

/// Samples the pages of live objects. `live` has their page ranges, by their first page.
pub(crate) fn sample(event: u64, core: &Geometry, kernel: &Kernel, live: &[Range<u64>]) -> ReachSample {
    let (mut mix, mut under_huge, mut done, mut last_huge) = (LiveMix::default(), 0, 0, None);
    for range in live {
        let mut page = range.start.max(done);
        while page < range.end {
            let pmd = page / PMD_PAGES;
            let pmd_end = ((pmd + 1) * PMD_PAGES).min(range.end);
            match page_size(kernel, page) {
                PageSize::Base => mix.base_pages += pmd_end - page,
                PageSize::Huge => {
                    under_huge += pmd_end - page;
                    mix.huge_pages += u64::from(last_huge.replace(pmd) != Some(pmd));
                }
            }
            page = pmd_end;
        }
        done = done.max(range.end);
    }
    let pages = (mix.base_pages + under_huge).max(1);
    ReachSample {
        event,
        live: mix,
        huge_coverage: under_huge as f64 / pages as f64,
        l1: core.l1.reach(mix),
        l2: core.l2.reach(mix),
    }
}
