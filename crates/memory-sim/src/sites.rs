//! What the memory of each call site costs.

use std::collections::BTreeMap;

use hksim_linux_mm::{Installs, PageState, StateRun};
use hksim_memory_trace::{PAGE_BYTES, SiteId};
use serde::{Deserialize, Serialize};

use crate::regions::{Part, Regions, Use};
use crate::report::ObstacleCount;
use crate::space::Tally;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SiteUse {
    /// Made by calls from this site.
    Site(SiteId),
    /// Its call site was not recorded.
    Unknown(Use),
}

/// The call site of a prediction that was read back.
fn unknown() -> SiteUse {
    SiteUse::Unknown(Use::Mmap)
}

/// What the memory of one call site costs. The sums over all sites are the sums over all regions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SitePrediction {
    /// The call site. Not exported: numbers are those of the simulation.
    #[serde(skip, default = "unknown")]
    pub site: SiteUse,
    /// Regions of which calls from the site made a part.
    pub regions: u64,
    /// First touches in the recording, in which huge pages were off.
    pub touches: u64,
    /// Exceptions.
    pub traps: u64,
    /// Installs by touches and by calls that populate.
    pub installs: Installs,
    /// Bytes that these installs made present.
    pub bytes_installed: u64,
    /// Resident bytes at the end, hugetlb included.
    pub rss_bytes_end: u64,
    /// Those of them in huge pages.
    pub huge_bytes_end: u64,
    /// Every install of less than 2 MiB by what kept a huge page out, most frequent first.
    pub obstacles: Vec<ObstacleCount>,
}

/// Figures of one call site that are being added up.
#[derive(Default)]
struct Sum {
    regions: u64,
    tally: Tally,
    resident_pages: u64,
    huge_pages: u64,
}

/// The figures of each call site with touches or resident pages, most touches first. `pages` is what is present at the
/// end.
pub(crate) fn by_site(parts: &[Tally], regions: &Regions, pages: &[StateRun]) -> Vec<SitePrediction> {
    let mut sums: BTreeMap<SiteUse, Sum> = BTreeMap::new();
    let owner = |part: &Part| match part.site {
        site if site != SiteId::UNKNOWN => SiteUse::Site(site),
        _ => SiteUse::Unknown(regions.all()[part.region.0 as usize].usage),
    };
    for (tally, part) in parts.iter().zip(regions.parts()).filter(|(tally, _)| tally.is_used()) {
        let sum = sums.entry(owner(part)).or_default();
        sum.regions += 1;
        sum.tally.add(tally);
    }
    let mut runs = pages.iter().peekable();
    for (range, part) in regions.ranges() {
        let sum = sums.entry(owner(&regions.parts()[part.0 as usize])).or_default();
        // Runs and ranges ascend; a run can reach over several ranges.
        while let Some(run) = runs.peek() {
            let end = run.first_page + run.pages;
            let inside = end.min(range.end).saturating_sub(run.first_page.max(range.start));
            match run.state {
                PageState::Base | PageState::Mthp => sum.resident_pages += inside,
                PageState::Thp | PageState::Hugetlb => {
                    sum.resident_pages += inside;
                    sum.huge_pages += inside;
                }
                PageState::None | PageState::Zero | PageState::HugeZero => {}
            }
            if end > range.end {
                break;
            }
            runs.next();
        }
    }
    let mut sites: Vec<_> = sums.into_iter().map(|(site, sum)| prediction(site, &sum)).collect();
    sites.retain(|site| site.touches > 0 || site.installs.total > 0 || site.rss_bytes_end > 0);
    sites.sort_by_key(|site| std::cmp::Reverse(site.touches));
    sites
}

fn prediction(site: SiteUse, sum: &Sum) -> SitePrediction {
    SitePrediction {
        site,
        regions: sum.regions,
        touches: sum.tally.touches,
        traps: sum.tally.traps,
        installs: sum.tally.installs.into(),
        bytes_installed: sum.tally.pages_installed * PAGE_BYTES,
        rss_bytes_end: sum.resident_pages * PAGE_BYTES,
        huge_bytes_end: sum.huge_pages * PAGE_BYTES,
        obstacles: sum.tally.obstacle_counts(),
    }
}
