//! What a change of advice or of a mode would give.

use hksim_linux_mm::PlaceObstacle::{MappingEdge, MappingTooShort, MappingUnaligned};
use hksim_linux_mm::{PMD_PAGES, ThpDisable, ThpMode};
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::smaps::Mapping;
use hksim_text::units::{bytes, of, time};
use serde::{Deserialize, Serialize};

use crate::inspection::{Memory, WayCount};
use crate::machine::{HUGE_BYTES, Khugepaged};
use crate::verdict::{Obstacle, Situation, Way};

/// What a change would give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// The change, and what it gives.
    pub sentence: String,
    /// Memory that it puts into huge pages, or that it gives back; 0 if that depends on what the program does next.
    pub bytes: u64,
    /// Memory that becomes resident in addition.
    pub rss_bytes_extra: u64,
}

/// What a situation gives, as against the present one.
struct Gain {
    /// Ranges that khugepaged collapses.
    collapses: u64,
    /// Bytes by which resident memory grows with them.
    rss_bytes_extra: u64,
    /// Empty ranges that become huge pages at the next write.
    at_writes: u64,
}

/// The changes that would give something, in the order of their cost to others.
pub(crate) fn remedies(memory: &Memory, situation: &Situation) -> Vec<Remedy> {
    let now = Gain::of(memory, situation);
    let mut remedies = Vec::new();
    remedies.extend(now.left_alone(memory, situation));
    let changed = |change: &dyn Fn(&mut Situation)| {
        let mut other = situation.clone();
        change(&mut other);
        Gain::of(memory, &other).beyond(&now)
    };
    let allowed = (situation.disable != ThpDisable::Off).then(|| changed(&|other| other.disable = ThpDisable::Off));
    remedies.extend(allowed.and_then(|gain| gain.told("Without PR_SET_THP_DISABLE (prctl; systemd: MemoryTHP=)")));
    let advised = changed(&|other| other.advises_all = true);
    remedies.extend(advised.told("With MADV_HUGEPAGE on all of its private memory"));
    if situation.mode != ThpMode::Always {
        let always = changed(&|other| other.mode = ThpMode::Always);
        remedies.extend(always.told("With the THP mode always, for the whole machine"));
    }
    if situation.mode == ThpMode::Never {
        let both = changed(&|other| (other.mode, other.advises_all) = (ThpMode::Madvise, true));
        remedies.extend(both.told("With the THP mode madvise and MADV_HUGEPAGE on all of its private memory"));
    }
    if situation.khugepaged.max_ptes_none.is_some_and(|limit| limit < PMD_PAGES - 1) {
        let limit = Some(PMD_PAGES - 1);
        let sparse = changed(&|other| other.khugepaged.max_ptes_none = limit);
        remedies.extend(sparse.told("With khugepaged/max_ptes_none 511, for the whole machine"));
    }
    remedies.extend(by_call(memory, situation));
    remedies.extend(by_alignment(memory, situation));
    remedies.extend(lazily_freed(memory));
    remedies
}

impl Gain {
    fn of(memory: &Memory, situation: &Situation) -> Self {
        let ways = memory.ways(situation);
        let by = |way| ways.get(&way).copied().unwrap_or(WayCount { way, ranges: 0, small_bytes: 0 });
        let collapses = by(Way::Khugepaged);
        Self {
            collapses: collapses.ranges,
            rss_bytes_extra: (collapses.ranges * HUGE_BYTES).saturating_sub(collapses.small_bytes),
            at_writes: by(Way::NextFault).ranges,
        }
    }

    fn beyond(self, now: &Gain) -> Self {
        Self {
            collapses: self.collapses.saturating_sub(now.collapses),
            rss_bytes_extra: self.rss_bytes_extra.saturating_sub(now.rss_bytes_extra),
            at_writes: self.at_writes.saturating_sub(now.at_writes),
        }
    }

    /// What happens without any change.
    fn left_alone(&self, memory: &Memory, situation: &Situation) -> Option<Remedy> {
        let scan =
            scan_ns(memory, situation).map_or(String::new(), |ns| format!("; a scan of it takes {} or more", time(ns)));
        let remedy = self.told("As it is")?;
        let sentence = if self.collapses > 0 { remedy.sentence + &scan } else { remedy.sentence };
        Some(Remedy { sentence, ..remedy })
    }

    /// The gain as a sentence; `None` if there is none.
    fn told(&self, change: &str) -> Option<Remedy> {
        let huge_bytes = self.collapses * HUGE_BYTES;
        let collapsed = (self.collapses > 0).then(|| {
            let (ranges, extra) = (of(self.collapses, "range"), bytes(self.rss_bytes_extra));
            format!("khugepaged can collapse {ranges} into huge pages ({}; RSS grows by {extra})", bytes(huge_bytes))
        });
        let written = (self.at_writes > 0).then(|| {
            let (ranges, all) = (of(self.at_writes, "empty range"), bytes(self.at_writes * HUGE_BYTES));
            format!("writes to {ranges} ({all}) can install huge pages")
        });
        let gains: Vec<String> = collapsed.into_iter().chain(written).collect();
        let sentence = format!("{change}, {}", gains.join(", and "));
        (!gains.is_empty()).then_some(Remedy { sentence, bytes: huge_bytes, rss_bytes_extra: self.rss_bytes_extra })
    }
}

/// The shortest time in which khugepaged scans all eligible memory of the process.
fn scan_ns(memory: &Memory, situation: &Situation) -> Option<u64> {
    let Khugepaged { pages_to_scan, scan_sleep_ms, .. } = situation.khugepaged;
    let is_eligible = |mapping: &&Mapping| mapping.is_anonymous() && situation.refusal(mapping).is_none();
    let pages: u64 = memory.mappings.iter().filter(is_eligible).map(|mapping| mapping.bytes() / PAGE_BYTES).sum();
    let scans = pages.div_ceil(pages_to_scan.filter(|&pages| pages > 0)?);
    scans.saturating_sub(1).checked_mul(scan_sleep_ms?)?.checked_mul(1_000_000)
}

/// What calls of `MADV_COLLAPSE` would give: they ask no mode and no limit of khugepaged.
fn by_call(memory: &Memory, situation: &Situation) -> Option<Remedy> {
    let ways = memory.ways(situation);
    let counts = [Way::Khugepaged, Way::CollapseCall].into_iter().filter_map(|way| ways.get(&way));
    let (ranges, small_bytes) =
        counts.fold((0, 0), |(ranges, small), count| (ranges + count.ranges, small + count.small_bytes));
    let huge_bytes = ranges * HUGE_BYTES;
    let extra = huge_bytes.saturating_sub(small_bytes);
    let sentence = format!(
        "With MADV_COLLAPSE, called by itself or through process_madvise, {} can become huge pages at once ({}; RSS grows by \
         {}), whatever the mode",
        of(ranges, "range"),
        bytes(huge_bytes),
        bytes(extra)
    );
    (ranges > 0).then_some(Remedy { sentence, bytes: huge_bytes, rss_bytes_extra: extra })
}

/// Memory that only another layout could have in huge pages.
fn by_alignment(memory: &Memory, situation: &Situation) -> Option<Remedy> {
    let mut small_bytes = 0;
    memory.each(situation, |_, range, verdict, number| {
        if let Some(Obstacle::Place(MappingEdge | MappingTooShort | MappingUnaligned)) = verdict.obstacle {
            small_bytes += number * range.small_bytes();
        }
    });
    let sentence = format!(
        "With mappings of whole, aligned 2 MiB (an allocator that reserves more at once), {} more could be in huge pages; no \
         setting reaches it",
        bytes(small_bytes)
    );
    (small_bytes >= HUGE_BYTES).then_some(Remedy { sentence, bytes: small_bytes, rss_bytes_extra: 0 })
}

/// Memory that the process has given up.
fn lazily_freed(memory: &Memory) -> Option<Remedy> {
    let freed = memory.mappings.iter().map(|mapping| mapping.lazy_free_bytes).sum();
    let sentence = format!(
        "With MADV_DONTNEED in place of MADV_FREE, or under memory pressure, {} of its RSS goes back at once",
        bytes(freed)
    );
    (freed > 0).then_some(Remedy { sentence, bytes: freed, rss_bytes_extra: 0 })
}
