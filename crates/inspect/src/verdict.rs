//! Whether a 2 MiB range can become a huge page, by which way, and why not.

use hksim_linux_mm::{PMD_PAGES, PlaceObstacle, SettingObstacle, ThpDisable, ThpMode};
use hksim_linux_probe::smaps::Mapping;
use serde::{Deserialize, Serialize};

use crate::machine::Khugepaged;
use crate::range::{Entry, PmdRange};

/// The settings that decide about a range, apart from its mapping's own advice.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// `PR_SET_THP_DISABLE` of the process.
    pub disable: ThpDisable,
    /// The mode of 2 MiB pages.
    pub mode: ThpMode,
    /// Limits of khugepaged.
    pub khugepaged: Khugepaged,
    /// Whether every mapping counts as advised with `MADV_HUGEPAGE`.
    pub advises_all: bool,
}

/// The best way for a range to become a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// It is one.
    IsHuge,
    /// By the next write to it.
    NextFault,
    /// By a scan of khugepaged.
    Khugepaged,
    /// Only by a call of `MADV_COLLAPSE`.
    CollapseCall,
    /// By none.
    None,
}

/// What keeps a range from being a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// A setting: another one would allow it.
    Setting(SettingObstacle),
    /// Its place.
    Place(PlaceObstacle),
    /// More pages are absent or zero than `max_ptes_none` allows.
    TooManyAbsent,
    /// More pages are in swap than `max_ptes_swap` allows.
    TooManySwapped,
    /// More pages are shared with another process than `max_ptes_shared` allows.
    TooManyShared,
    /// Its pages were given up with `MADV_FREE`, and none was used since.
    GivenUp,
    /// Pages are absent, and `userfaultfd` watches the mapping: the kernel fills none of them by itself.
    Watched,
}

/// Whether a range can become a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Verdict {
    /// The best way.
    pub way: Way,
    /// What keeps it from being one now, and from becoming one by a better way; `None` where the way is a fault, and
    /// where it is one.
    pub obstacle: Option<Obstacle>,
}

impl Way {
    /// Every way, the best first.
    pub const ALL: [Self; 5] = [Self::IsHuge, Self::NextFault, Self::Khugepaged, Self::CollapseCall, Self::None];

    /// The way in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::IsHuge => "huge",
            Self::NextFault => "at the next write",
            Self::Khugepaged => "by khugepaged",
            Self::CollapseCall => "by MADV_COLLAPSE only",
            Self::None => "not",
        }
    }
}

impl Obstacle {
    /// The obstacle in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Setting(setting) => setting.words(),
            Self::Place(place) => place.words(),
            Self::TooManyAbsent => "more pages are absent than max_ptes_none allows",
            Self::TooManySwapped => "more pages are in swap than max_ptes_swap allows",
            Self::GivenUp => "all of its pages were given up with MADV_FREE",
            Self::Watched => "pages are absent in a mapping that userfaultfd watches",
            Self::TooManyShared => "more pages are shared after a fork than max_ptes_shared allows",
        }
    }
}

impl Situation {
    /// The setting that refuses huge pages in a mapping.
    pub fn refusal(&self, mapping: &Mapping) -> Option<SettingObstacle> {
        let is_advised = self.advises_all || mapping.has(b"hg");
        let is_forbidden = match self.disable {
            ThpDisable::Off => false,
            ThpDisable::All => true,
            ThpDisable::ExceptAdvised => !is_advised,
        };
        match self.mode {
            _ if is_forbidden => Some(SettingObstacle::DisabledForProcess),
            _ if mapping.has(b"nh") && !self.advises_all => Some(SettingObstacle::AdvisedAgainst),
            ThpMode::Never => Some(SettingObstacle::ModeNever),
            ThpMode::Madvise if !is_advised => Some(SettingObstacle::NotAdvised),
            ThpMode::Madvise | ThpMode::Always => None,
        }
    }

    /// Whether a range of a mapping can become a huge page.
    pub fn verdict(&self, mapping: &Mapping, range: &PmdRange) -> Verdict {
        let verdict = |way, obstacle| Verdict { way, obstacle };
        match range.entry {
            Entry::Huge => return verdict(Way::IsHuge, None),
            // The first write to a huge zero page asks no setting.
            Entry::HugeZero if mapping.is_writable() => return verdict(Way::NextFault, None),
            Entry::HugeZero | Entry::Pages => {}
        }
        if let Some(place) = place(mapping, range) {
            return verdict(Way::None, Some(Obstacle::Place(place)));
        }
        if is_watched(mapping, range) {
            return verdict(Way::None, Some(Obstacle::Watched));
        }
        let setting = self.refusal(mapping);
        if range.is_empty() {
            return match setting {
                Some(setting) => verdict(Way::None, Some(Obstacle::Setting(setting))),
                None if !mapping.is_writable() => verdict(Way::None, Some(Obstacle::Place(PlaceObstacle::NotWritable))),
                None => verdict(Way::NextFault, None),
            };
        }
        let refused = setting.map(Obstacle::Setting).or_else(|| self.limit(range));
        match refused {
            None => verdict(Way::Khugepaged, Some(Obstacle::Place(PlaceObstacle::PagesPresent))),
            Some(refused) if self.collapses_by_call(mapping, range) => verdict(Way::CollapseCall, Some(refused)),
            Some(refused) => verdict(Way::None, Some(refused)),
        }
    }

    /// The limit of khugepaged that a range exceeds. Zero pages count as absent.
    fn limit(&self, range: &PmdRange) -> Option<Obstacle> {
        let exceeds = |pages: u64, limit: Option<u64>| limit.is_some_and(|limit| pages > limit);
        let absent = range.absent_pages();
        if range.written_pages == 0 || exceeds(absent, self.khugepaged.max_ptes_none) {
            Some(Obstacle::TooManyAbsent)
        } else if exceeds(range.swapped_pages, self.khugepaged.max_ptes_swap) {
            Some(Obstacle::TooManySwapped)
        } else if exceeds(range.shared_pages, self.khugepaged.max_ptes_shared) {
            Some(Obstacle::TooManyShared)
        } else if range.lazily_freed_pages == range.written_pages {
            Some(Obstacle::GivenUp)
        } else {
            None
        }
    }

    /// Whether `MADV_COLLAPSE` makes it a huge page: it asks neither the mode nor khugepaged's limits, nor, of the
    /// process's setting, the exception.
    fn collapses_by_call(&self, mapping: &Mapping, range: &PmdRange) -> bool {
        let is_allowed = self.disable != ThpDisable::All && (self.advises_all || !mapping.has(b"nh"));
        is_allowed && (range.written_pages > 0 || range.zero_pages > 0 && mapping.anonymous_bytes > 0)
    }
}

/// Whether `userfaultfd` keeps a huge page out: a collapse may not fill absent pages of a mapping that it watches
/// (`userfaultfd_armed` in mm/khugepaged.c), and the first write to a range is the business of the one who watches for
/// missing pages.
fn is_watched(mapping: &Mapping, range: &PmdRange) -> bool {
    match range.is_empty() {
        true => mapping.has(b"um"),
        false => [b"um", b"uw", b"ui"].into_iter().any(|flag| mapping.has(flag)) && range.absent_pages() > 0,
    }
}

/// What the shape of the mapping and the range has against a huge page by any way.
fn place(mapping: &Mapping, range: &PmdRange) -> Option<PlaceObstacle> {
    if range.is_whole {
        return (range.guard_pages > 0).then_some(PlaceObstacle::GuardPage);
    }
    let bytes = PMD_PAGES * hksim_linux_probe::PAGE_BYTES;
    let holds_aligned_range = mapping.addresses.start.next_multiple_of(bytes) + bytes <= mapping.addresses.end;
    Some(if holds_aligned_range {
        PlaceObstacle::MappingEdge
    } else if mapping.bytes() < bytes {
        PlaceObstacle::MappingTooShort
    } else {
        PlaceObstacle::MappingUnaligned
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(mode: ThpMode) -> Situation {
        let khugepaged = Khugepaged {
            max_ptes_none: Some(256),
            max_ptes_swap: Some(64),
            max_ptes_shared: Some(256),
            ..Khugepaged::default()
        };
        Situation { disable: ThpDisable::Off, mode, khugepaged, advises_all: false }
    }

    fn mapping(flags: &[[u8; 2]]) -> Mapping {
        let (addresses, mode) = (0..16 << 20, "rw-p".to_string());
        Mapping { addresses, mode, flags: flags.to_vec(), anonymous_bytes: 4096, ..Mapping::default() }
    }

    fn range(written_pages: u64) -> PmdRange {
        PmdRange { is_whole: true, written_pages, ..PmdRange::default() }
    }

    #[test]
    fn settings_refuse_in_the_order_of_the_kernel() {
        use SettingObstacle::{AdvisedAgainst, DisabledForProcess, ModeNever, NotAdvised};
        let refusals =
            |situation: &Situation| [&[][..], &[*b"hg"], &[*b"nh"]].map(|flags| situation.refusal(&mapping(flags)));
        let (always, madvise, never) =
            (situation(ThpMode::Always), situation(ThpMode::Madvise), situation(ThpMode::Never));
        assert_eq!(refusals(&always), [None, None, Some(AdvisedAgainst)]);
        assert_eq!(refusals(&madvise), [Some(NotAdvised), None, Some(AdvisedAgainst)]);
        assert_eq!(refusals(&never), [Some(ModeNever), Some(ModeNever), Some(AdvisedAgainst)]);
        let off = Situation { disable: ThpDisable::All, ..always.clone() };
        assert_eq!(refusals(&off), [Some(DisabledForProcess); 3]);
        let advised_only = Situation { disable: ThpDisable::ExceptAdvised, ..always };
        assert_eq!(refusals(&advised_only), [Some(DisabledForProcess), None, Some(DisabledForProcess)]);
        assert_eq!(refusals(&Situation { advises_all: true, ..madvise }), [None; 3]);
    }

    #[test]
    fn khugepaged_collapses_up_to_its_limits() {
        let verdict = |range: &PmdRange| situation(ThpMode::Always).verdict(&mapping(&[]), range);
        assert_eq!(verdict(&range(0)), Verdict { way: Way::NextFault, obstacle: None });
        assert_eq!(verdict(&range(256)).way, Way::Khugepaged);
        let refused = |range: PmdRange, obstacle| {
            assert_eq!(verdict(&range), Verdict { way: Way::CollapseCall, obstacle: Some(obstacle) });
        };
        refused(range(255), Obstacle::TooManyAbsent);
        refused(PmdRange { zero_pages: 257, ..range(255) }, Obstacle::TooManyAbsent);
        refused(PmdRange { swapped_pages: 65, ..range(400) }, Obstacle::TooManySwapped);
        refused(PmdRange { lazily_freed_pages: 400, ..range(400) }, Obstacle::GivenUp);
        refused(PmdRange { shared_pages: 257, ..range(512) }, Obstacle::TooManyShared);
        assert_eq!(verdict(&PmdRange { entry: Entry::Huge, ..range(0) }).way, Way::IsHuge);
    }

    #[test]
    fn places_refuse_by_every_way() {
        let verdict = |mapping: &Mapping, range: &PmdRange| {
            let verdict = situation(ThpMode::Always).verdict(mapping, range);
            assert_eq!(verdict.way, Way::None);
            verdict.obstacle
        };
        let edge = PmdRange { is_whole: false, ..range(3) };
        let place = |place| Some(Obstacle::Place(place));
        assert_eq!(verdict(&mapping(&[]), &edge), place(PlaceObstacle::MappingEdge));
        let short = Mapping { addresses: 0..1 << 20, ..mapping(&[]) };
        assert_eq!(verdict(&short, &edge), place(PlaceObstacle::MappingTooShort));
        let unaligned = Mapping { addresses: 4096..(4 << 20) - 4096, ..mapping(&[]) };
        assert_eq!(verdict(&unaligned, &edge), place(PlaceObstacle::MappingUnaligned));
        let guarded = PmdRange { guard_pages: 1, ..range(500) };
        assert_eq!(verdict(&mapping(&[]), &guarded), place(PlaceObstacle::GuardPage));
        let read_only = Mapping { mode: "r--p".to_string(), ..mapping(&[]) };
        assert_eq!(verdict(&read_only, &range(0)), place(PlaceObstacle::NotWritable));
    }

    #[test]
    fn userfaultfd_keeps_absent_pages_absent() {
        let verdict = |flag: [u8; 2], range: PmdRange| {
            let verdict = situation(ThpMode::Always).verdict(&mapping(&[flag]), &range);
            (verdict.way, verdict.obstacle == Some(Obstacle::Watched))
        };
        let zero = PmdRange { zero_pages: 1, ..range(511) };
        for flag in [*b"um", *b"uw"] {
            for incomplete in [range(1), range(511), zero] {
                assert_eq!(verdict(flag, incomplete), (Way::None, true), "{incomplete:?}");
            }
            assert_eq!(verdict(flag, range(512)), (Way::Khugepaged, false));
        }
        assert_eq!(verdict(*b"um", range(0)), (Way::None, true));
        assert_eq!(verdict(*b"uw", range(0)), (Way::NextFault, false));
    }
}
