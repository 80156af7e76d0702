//! Predictions in their exported form. Field names are a stable interface and those of `hksim sim`, with units last.

use hksim_linux_mm::{
    ByKind, Installs, KhugepagedAtEnd, KhugepagedBound, KhugepagedSettled, MemoryLimit, Obstacles, StateRun,
};
use hksim_memory_trace::SiteId;
use hksim_text::units::{bytes, of};
use serde::{Deserialize, Serialize};

use crate::advisers::AdvisedUse;
use crate::family_total::FamilyTotal;
use crate::page_work::PageWork;
use crate::regions::{Region, Regions};
use crate::setting::Setting;
use crate::sites::SitePrediction;
use crate::space::{Space, Tally};
use crate::stacks::StackPrediction;
use crate::timeline::Sample;
use crate::unseen_writes::UnseenWrites;

/// How often the same rules kept an install from being a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObstacleCount {
    /// The rules.
    #[serde(flatten)]
    pub obstacles: Obstacles,
    /// Installs of less than a huge page.
    pub installs: u64,
}

/// What the touches of one region cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionPrediction {
    /// Number of the region, in order of creation.
    pub number: usize,
    /// The region.
    #[serde(flatten)]
    pub region: Region,
    /// First touches in the recording, in which huge pages were off.
    pub touches: u64,
    /// Exceptions.
    pub traps: u64,
    /// Installs by touches and by calls that populate.
    pub installs: Installs,
    /// Bytes that these installs made present.
    pub bytes_installed: u64,
    /// Every install of less than 2 MiB by what kept a huge page out, most frequent first.
    pub obstacles: Vec<ObstacleCount>,
}

/// The most bytes of the highest resident memory that can be in huge pages, transparent or of the pool.
pub fn huge_bytes_peak_max(huge_pages_peak: u64, hugetlb_bytes_peak: u64, rss_bytes_peak: u64) -> u64 {
    let transparent = huge_pages_peak.saturating_mul(hksim_linux_mm::PMD_PAGES * hksim_memory_trace::PAGE_BYTES);
    transparent.saturating_add(hugetlb_bytes_peak).min(rss_bytes_peak)
}

/// What is wrong with the figures if the hugetlb pool is too small for `maps_failed` mmaps of `bytes_failed` in all; `None` if
/// there are none.
pub fn hugetlb_shortage(maps_failed: u64, bytes_failed: u64) -> Option<String> {
    (maps_failed > 0).then(|| {
        format!(
            "the hugetlb pool is too small: {} of {} in all fail; figures are without this memory, and the recording does not \
             show whether the program would end or use small pages instead",
            of(maps_failed, "mmap"),
            bytes(bytes_failed)
        )
    })
}

/// One address space under one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The setting.
    #[serde(flatten)]
    pub setting: Setting,
    /// Page-table installs.
    pub installs: Installs,
    /// Faults charged to `ru_minflt`, by touches and by calls that populate.
    pub faults: u64,
    /// #PF exceptions in modelled memory.
    pub traps: u64,
    /// Exceptions among them that raised a signal.
    pub traps_denied: u64,
    /// Faults that only restored write permission.
    pub reuses: u64,
    /// Huge PMD entries split.
    pub pmd_splits: u64,
    /// Highest resident bytes of modelled memory, hugetlb included.
    pub rss_bytes_peak: u64,
    /// Resident bytes of modelled memory at the end.
    pub rss_bytes_end: u64,
    /// Highest number of transparent huge pages mapped.
    pub huge_pages_peak: u64,
    /// Those of them in pages that `MADV_FREE` marked, which the kernel drops when memory is short. At most: writing such a
    /// page again raises no fault, so it is not recorded.
    #[serde(default)]
    pub lazy_free_bytes_end_max: u64,
    /// Transparent huge pages mapped at the end.
    pub huge_pages_end: u64,
    /// Highest bytes in pages of the hugetlb pool.
    pub hugetlb_bytes_peak: u64,
    /// Highest number of mappings.
    pub vmas_peak: u64,
    /// Highest bytes of page tables.
    pub page_table_bytes_peak: u64,
    /// Recorded calls that fail in the model.
    pub calls_failed: u64,
    /// Of those, mmaps of the hugetlb pool, which is too small for them. The figures are without their memory.
    #[serde(default)]
    pub hugetlb_maps_failed: u64,
    /// Bytes of these mmaps.
    #[serde(default)]
    pub hugetlb_bytes_failed: u64,
    /// A bound on khugepaged's effects; `None` if no mapping can have huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub khugepaged_bound: Option<KhugepagedBound>,
    /// Memory at the end once khugepaged has scanned it completely; `None` if not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub khugepaged_settled: Option<KhugepagedSettled>,
    /// The most that khugepaged can leave at the end; `None` if not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub khugepaged_at_end: Option<KhugepagedAtEnd>,
    /// The process under the limit of its memory control group, with the members of its fork family whose recordings are
    /// here; `None` without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryLimit>,
    /// What depends on writes after `MADV_FREE`, which the recording does not have; `None` if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen_writes: Option<UnseenWrites>,
    /// The process with its fork family; `None` if it is alone, or the recordings of the others are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<FamilyTotal>,
    /// What stacks that grow cost, which the other figures leave out; `None` if none was touched.
    pub stack: Option<StackPrediction>,
    /// The kernel's work, in operations that have a cost.
    pub page_work: PageWork,
    /// Regions with at least one touch or install, in order of creation.
    pub regions: Vec<RegionPrediction>,
    /// What the memory of each call site costs, most touches first; `None` if call sites were not recorded. Not exported:
    /// it has no names.
    #[serde(skip)]
    pub sites: Option<Vec<SitePrediction>>,
    /// Who asked for huge pages, and how many the advice brought. Not exported: it has no names.
    #[serde(skip)]
    pub advisers: Vec<(SiteId, AdvisedUse)>,
    /// Samples, the last at the end.
    pub timeline: Vec<Sample>,
    /// Pages that `MADV_FREE` marked, where it matters whether they are written again. Not exported: `unseen_writes` says what
    /// depends on it.
    #[serde(skip)]
    pub marked_pages: u64,
    /// khugepaged can work on memory of this process or of a relative by fork. Not exported: `khugepaged_bound` is this
    /// process's.
    #[serde(skip)]
    pub is_collapsible: bool,
    /// Samples at the moments that were asked for. Not exported: what happened there is known elsewhere.
    #[serde(skip)]
    pub at_moments: Vec<Sample>,
    /// What is present at the end, if asked for. Not exported.
    #[serde(skip)]
    pub pages: Vec<StateRun>,
}

impl Prediction {
    /// The most bytes of the highest resident memory that can be in huge pages of either kind: both peaks may be at
    /// different times.
    pub fn huge_bytes_peak_max(&self) -> u64 {
        huge_bytes_peak_max(self.huge_pages_peak, self.hugetlb_bytes_peak, self.rss_bytes_peak)
    }

    /// The figures of an address space at its end, without regions, call sites, pages and what concerns its family.
    pub(crate) fn of(space: &mut Space, setting: &Setting) -> Self {
        let (timeline, at_moments) = (space.timeline(), space.at_moments());
        let counters = *space.kernel.counters();
        let by_kind = ByKind::from(&counters);
        Self {
            regions: Vec::new(),
            setting: setting.clone(),
            installs: Installs { total: counters.installs_total(), by_kind },
            faults: counters.faults,
            traps: counters.traps,
            traps_denied: space.traps_denied,
            reuses: counters.reuses,
            pmd_splits: counters.pmd_splits,
            rss_bytes_peak: space.rss_bytes_peak,
            rss_bytes_end: space.kernel.resident_bytes(),
            lazy_free_bytes_end_max: space.kernel.lazy_free_pages() * hksim_memory_trace::PAGE_BYTES,
            huge_pages_peak: space.huge_pages_peak,
            huge_pages_end: space.kernel.huge_pages(),
            hugetlb_bytes_peak: space.hugetlb_pages_peak * hksim_linux_mm::PMD_PAGES * hksim_memory_trace::PAGE_BYTES,
            vmas_peak: space.vmas_peak,
            page_table_bytes_peak: space.page_table_bytes_peak,
            calls_failed: space.calls_failed,
            hugetlb_maps_failed: space.hugetlb_maps_failed,
            hugetlb_bytes_failed: space.hugetlb_bytes_failed,
            page_work: space.work(),
            stack: space.stacks.prediction(),
            khugepaged_bound: space.kernel.khugepaged_bound(space.time_last_ns()),
            khugepaged_settled: space.kernel.khugepaged_settled(),
            khugepaged_at_end: space.kernel.khugepaged_at_end(space.time_last_ns()),
            memory_limit: None,
            unseen_writes: None,
            marked_pages: 0,
            is_collapsible: false,
            family: None,
            sites: None,
            advisers: space.advisers.uses(),
            timeline,
            at_moments,
            pages: Vec::new(),
        }
    }
}

/// What the touches of each region cost, given those of each part of a region.
pub(crate) fn by_region(parts: &[Tally], regions: &Regions) -> Vec<RegionPrediction> {
    let mut tallies = vec![Tally::default(); regions.all().len()];
    for (tally, part) in parts.iter().zip(regions.parts()) {
        tallies[part.region.0 as usize].add(tally);
    }
    let touched = tallies.iter().zip(regions.all()).enumerate().filter(|(_, (tally, _))| tally.is_used());
    let prediction = |(number, (tally, region)): (usize, (&Tally, &Region))| RegionPrediction {
        number,
        region: region.clone(),
        touches: tally.touches,
        traps: tally.traps,
        installs: tally.installs.into(),
        bytes_installed: tally.pages_installed * hksim_memory_trace::PAGE_BYTES,
        obstacles: tally.obstacle_counts(),
    };
    touched.map(prediction).collect()
}
