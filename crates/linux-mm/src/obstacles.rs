//! Why a page gets no huge page (R1).

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::config::{PMD_ORDER, ThpAdvice};
use super::entry::PmdEntry;
use super::rules::HugeZeroWrite;
use super::span::{PMD_PAGES, pmd_of};
use super::vma::Vma;

/// A setting that keeps huge pages out of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingObstacle {
    /// `prctl(PR_SET_THP_DISABLE)` (R28).
    DisabledForProcess,
    /// `MADV_NOHUGEPAGE`.
    AdvisedAgainst,
    /// `MAP_STACK`, which acts as advice against huge pages (R30).
    StackMapping,
    /// The mode of 2 MiB pages is `never`. Advice does not help.
    ModeNever,
    /// The mode of 2 MiB pages is `madvise`, and the mapping is not advised.
    NotAdvised,
}

/// A property of a page's place that keeps a huge page out, whatever the settings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceObstacle {
    /// Nothing is mapped there.
    NotMapped,
    /// The page is not private anonymous memory: a mapping that is not modelled, or hugetlb.
    NotAnonymous,
    /// The mapping is not writable.
    NotWritable,
    /// The mapping contains no aligned 2 MiB range, because it is shorter than 2 MiB.
    MappingTooShort,
    /// The mapping contains no aligned 2 MiB range, although it is at least 2 MiB long.
    MappingUnaligned,
    /// The mapping contains aligned 2 MiB ranges, but the page is before the first or after the last.
    MappingEdge,
    /// The page's 2 MiB range has a page table, usually because one of its pages was touched before (R1a).
    PagesPresent,
}

/// The obstacles to a huge page. If only a setting is in the way, another setting gives a huge page. If a place is in
/// the way, no setting does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Obstacles {
    /// The first setting that refuses; `None` if none does, and for memory that is not anonymous.
    pub setting: Option<SettingObstacle>,
    /// The first property of the place that refuses.
    pub place: Option<PlaceObstacle>,
}

impl Obstacles {
    /// Whether a write installs a huge page.
    pub fn is_empty(&self) -> bool {
        self.setting.is_none() && self.place.is_none()
    }
}

impl Kernel {
    /// The obstacles to a huge page at `page`, for a page that is not present. Without obstacles a write installs one.
    /// Ask before the first touch: later the touched page itself is an obstacle.
    ///
    /// The enums list their values in the order in which they are checked. Advice is checked before the mode, so
    /// [`SettingObstacle::ModeNever`] and [`SettingObstacle::NotAdvised`] mean that mode `always` would allow a huge
    /// page.
    pub fn obstacles(&mut self, page: u64) -> Obstacles {
        let place = |place| Obstacles { setting: None, place: Some(place) };
        let Some(vma) = self.vmas.covering(page) else { return place(PlaceObstacle::NotMapped) };
        if vma.is_unmodelled() || vma.flags.hugetlb {
            return place(PlaceObstacle::NotAnonymous);
        }
        let place = self.place_obstacle(&vma, page);
        // The first write to a huge zero page asks no setting (R4a).
        let is_huge_zero = matches!(self.tables.entry(pmd_of(page)), PmdEntry::HugeZero);
        let setting = if is_huge_zero { None } else { self.setting_obstacle(&vma) };
        Obstacles { setting, place }
    }

    fn setting_obstacle(&self, vma: &Vma) -> Option<SettingObstacle> {
        let allows = |advice: ThpAdvice| self.config.orders(advice) & (1 << PMD_ORDER) != 0;
        match vma.flags.thp {
            advice if self.forbids_huge(advice) => Some(SettingObstacle::DisabledForProcess),
            ThpAdvice::NoHuge if vma.is_stack => Some(SettingObstacle::StackMapping),
            ThpAdvice::NoHuge => Some(SettingObstacle::AdvisedAgainst),
            _ if !allows(ThpAdvice::Huge) => Some(SettingObstacle::ModeNever),
            advice if !allows(advice) => Some(SettingObstacle::NotAdvised),
            _ => None,
        }
    }

    fn place_obstacle(&self, vma: &Vma, page: u64) -> Option<PlaceObstacle> {
        let holds_aligned_range = vma.start.next_multiple_of(PMD_PAGES) + PMD_PAGES <= vma.end;
        let is_free = match self.tables.entry(pmd_of(page)) {
            PmdEntry::None => true,
            PmdEntry::HugeZero => self.config.rules.huge_zero_write == HugeZeroWrite::AllocateHuge,
            PmdEntry::Table(_) | PmdEntry::Huge(_) | PmdEntry::Hugetlb { .. } => false,
        };
        if !vma.flags.protection.is_writable() {
            Some(PlaceObstacle::NotWritable)
        } else if vma.covers_pmd_of(page) {
            (!is_free).then_some(PlaceObstacle::PagesPresent)
        } else if holds_aligned_range {
            Some(PlaceObstacle::MappingEdge)
        } else if vma.end - vma.start < PMD_PAGES {
            Some(PlaceObstacle::MappingTooShort)
        } else {
            Some(PlaceObstacle::MappingUnaligned)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Advice, Content, KernelConfig, MapFlags, Protection, ThpConfig, ThpDisable, ThpMode};

    fn kernel(mode: ThpMode) -> Kernel {
        Kernel::new(KernelConfig { thp: ThpConfig::new(mode), ..KernelConfig::default() })
    }

    #[test]
    fn settings_are_named_by_what_would_have_to_change() {
        use SettingObstacle::{AdvisedAgainst, DisabledForProcess, ModeNever, NotAdvised, StackMapping};
        let cases = [
            (ThpMode::Always, [None, None, Some(AdvisedAgainst), Some(StackMapping)]),
            (ThpMode::Madvise, [Some(NotAdvised), None, Some(AdvisedAgainst), Some(StackMapping)]),
            (ThpMode::Never, [Some(ModeNever), Some(ModeNever), Some(AdvisedAgainst), Some(StackMapping)]),
        ];
        for (mode, expected) in cases {
            let mut kernel = kernel(mode);
            kernel.map(0..1536, MapFlags::READ_WRITE).result.unwrap();
            kernel.advise(512..1024, Advice::HugePage).result.unwrap();
            kernel.advise(1024..1536, Advice::NoHugePage).result.unwrap();
            kernel.map(2048..2560, MapFlags { stack: true, ..MapFlags::READ_WRITE }).result.unwrap();
            let mut settings = || [7, 519, 1031, 2050].map(|page| kernel.obstacles(page));
            assert_eq!(settings().map(|obstacles| obstacles.setting), expected, "{mode:?}");
            assert_eq!(settings().map(|obstacles| obstacles.place), [None; 4]);
            kernel.disable_thp(ThpDisable::ExceptAdvised);
            assert_eq!(kernel.obstacles(7).setting, Some(DisabledForProcess));
            assert_eq!(kernel.obstacles(519).setting, expected[1]);
            kernel.disable_thp(ThpDisable::All);
            assert_eq!(kernel.obstacles(519).setting, Some(DisabledForProcess));
        }
    }

    #[test]
    fn places_are_named_by_the_shape_of_the_mapping() {
        use PlaceObstacle::{
            MappingEdge, MappingTooShort, MappingUnaligned, NotAnonymous, NotMapped, NotWritable, PagesPresent,
        };
        let mut kernel = kernel(ThpMode::Always);
        kernel.map(100..611, MapFlags::READ_WRITE).result.unwrap();
        kernel.map(1100..2000, MapFlags::READ_WRITE).result.unwrap();
        kernel.map(3000..5000, MapFlags::READ_WRITE).result.unwrap();
        kernel.map_unmodelled(6000..7000).unwrap();
        kernel.map(7168..7680, MapFlags { protection: Protection::Read, ..MapFlags::READ_WRITE }).result.unwrap();
        let mut place = |page| kernel.obstacles(page).place;
        assert_eq!(
            [0, 100, 610, 611].map(&mut place),
            [NotMapped, MappingTooShort, MappingTooShort, NotMapped].map(Some)
        );
        assert_eq!([1100, 1999].map(&mut place), [Some(MappingUnaligned); 2]);
        assert_eq!([3000, 3072, 4607, 4608].map(&mut place), [Some(MappingEdge), None, None, Some(MappingEdge)]);
        assert_eq!([6100, 7200].map(&mut place), [NotAnonymous, NotWritable].map(Some));
        kernel.touch(3072, Access::Write(Content::NonZero)).unwrap();
        kernel.advise(3584..4096, Advice::NoHugePage).result.unwrap();
        kernel.touch(3600, Access::Read).unwrap();
        let both = Obstacles { setting: Some(SettingObstacle::AdvisedAgainst), place: Some(PagesPresent) };
        assert_eq!([3073, 3601].map(|page| kernel.obstacles(page)), [Obstacles { setting: None, ..both }, both]);
    }
}
