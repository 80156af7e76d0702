//! Why a page gets no huge page (R1).

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::config::{PMD_ORDER, ThpAdvice};
use super::entry::{PmdEntry, TableOrigin};
use super::rules::HugeZeroWrite;
use super::span::{PMD_PAGES, index_of, pages_of, pmd_of};
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

impl SettingObstacle {
    /// The obstacle in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::DisabledForProcess => "huge pages are off for the process (prctl)",
            Self::AdvisedAgainst => "MADV_NOHUGEPAGE",
            Self::StackMapping => "a thread's stack (MAP_STACK)",
            Self::ModeNever => "THP mode never",
            Self::NotAdvised => "THP mode madvise, and no MADV_HUGEPAGE",
        }
    }
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
    /// The page's 2 MiB range has a page table, because one of its pages was touched before (R1a).
    PagesPresent,
    /// The page's 2 MiB range has a page table, because a page of a mapping that is not modelled was touched there.
    OtherMappingPresent,
    /// The page's 2 MiB range has a page table for a guard page (R32).
    GuardPage,
    /// A huge page of the 2 MiB range was split.
    HugePageSplit,
    /// A huge zero page of the 2 MiB range was split, or is split by the first write (R4a).
    HugeZeroPageSplit,
    /// The page is present: it is shared after a fork, and a write copies 4 KiB (R16).
    SharedAfterFork,
}

impl PlaceObstacle {
    /// The obstacle in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NotMapped => "not mapped",
            Self::NotAnonymous => "not anonymous memory",
            Self::NotWritable => "the mapping is not writable",
            Self::MappingTooShort => "the mapping is shorter than 2 MiB at that time",
            Self::MappingUnaligned => "the mapping contains no aligned 2 MiB",
            Self::MappingEdge => "at the edge of the mapping, outside its aligned 2 MiB ranges",
            Self::PagesPresent => "small pages are already in its 2 MiB range",
            Self::OtherMappingPresent => "a page of a file, stack or other mapping is in its 2 MiB range",
            Self::GuardPage => "a guard page (MADV_GUARD_INSTALL) is in its 2 MiB range",
            Self::HugePageSplit => "the huge page of its 2 MiB range was split",
            Self::HugeZeroPageSplit => "read before the first write: a huge zero page, which was split",
            Self::SharedAfterFork => "a copy after a fork: the page was shared",
        }
    }
}

/// What separates a mapping from a neighbour, so that a 2 MiB range lies in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingSplit {
    /// Another protection: mprotect.
    Protection,
    /// Advice about huge pages.
    HugePageAdvice,
    /// mlock.
    Lock,
    /// `MADV_DONTFORK` or `MADV_WIPEONFORK`.
    ForkAdvice,
    /// Other advice, such as `MADV_DONTDUMP`.
    OtherAdvice,
    /// A name (`PR_SET_VMA_ANON_NAME`).
    Name,
}

/// The obstacles to a huge page. If only a setting is in the way, another setting gives a huge page. If a place is in
/// the way, no setting does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Obstacles {
    /// The first setting that refuses; `None` if none does, and for memory that is not anonymous.
    pub setting: Option<SettingObstacle>,
    /// The first property of the place that refuses.
    pub place: Option<PlaceObstacle>,
    /// What separates the mapping from its neighbours, if together they would cover the page's 2 MiB range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<MappingSplit>,
}

impl Obstacles {
    /// Whether a write installs a huge page.
    pub fn is_empty(&self) -> bool {
        self.setting.is_none() && self.place.is_none()
    }
}

impl Kernel {
    /// The obstacles to a huge page at `page`, for a page that is not present or that a write copies. Without obstacles a
    /// write installs one. Ask before the first touch: later the touched page itself is an obstacle.
    ///
    /// The enums list their values in the order in which they are checked. Advice is checked before the mode, so
    /// [`SettingObstacle::ModeNever`] and [`SettingObstacle::NotAdvised`] mean that mode `always` would allow a huge
    /// page.
    pub fn obstacles(&mut self, page: u64) -> Obstacles {
        let place = |place| Obstacles { place: Some(place), ..Obstacles::default() };
        let Some(vma) = self.vmas.covering(page) else { return place(PlaceObstacle::NotMapped) };
        if vma.is_unmodelled() || vma.flags.hugetlb {
            return place(PlaceObstacle::NotAnonymous);
        }
        if self.is_shared(page) {
            return place(PlaceObstacle::SharedAfterFork);
        }
        let place = self.place_obstacle(&vma, page);
        let split = match place {
            Some(PlaceObstacle::MappingTooShort | PlaceObstacle::MappingUnaligned | PlaceObstacle::MappingEdge) => {
                self.split_around(&vma, page)
            }
            _ => None,
        };
        // The first write to a huge zero page asks no setting (R4a).
        let is_huge_zero = matches!(self.tables.entry(pmd_of(page)), PmdEntry::HugeZero);
        let setting = if is_huge_zero { None } else { self.setting_obstacle(&vma) };
        Obstacles { setting, place, split }
    }

    /// Whether a present page is write-protected: a write copies it, or only restores the permission.
    fn is_shared(&self, page: u64) -> bool {
        match self.tables.entry(pmd_of(page)) {
            PmdEntry::Huge(huge) => huge.protected,
            PmdEntry::Table(table) => {
                let pte = table.ptes[index_of(page)];
                pte.is_anon() && pte.protected()
            }
            _ => false,
        }
    }

    /// The first difference between `vma` and the adjacent mappings that hold the rest of the page's 2 MiB range, if
    /// they hold all of it and could be one mapping with it.
    fn split_around(&self, vma: &Vma, page: u64) -> Option<MappingSplit> {
        let pmd = pages_of(pmd_of(page));
        let (mut first, mut last, mut split) = (*vma, *vma, None);
        while pmd.start < first.start {
            let before = self.vmas.ending_at(first.start).filter(|before| before.is_split_from(vma))?;
            split = split.or(MappingSplit::between(&before, vma));
            first = before;
        }
        while last.end < pmd.end {
            let after = self.vmas.starting_at(last.end).filter(|after| after.is_split_from(vma))?;
            split = split.or(MappingSplit::between(&after, vma));
            last = after;
        }
        split
    }

    fn setting_obstacle(&self, vma: &Vma) -> Option<SettingObstacle> {
        let allows = |advice: ThpAdvice| self.orders.with(advice) & (1 << PMD_ORDER) != 0;
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
        if !vma.flags.protection.is_writable() {
            Some(PlaceObstacle::NotWritable)
        } else if vma.covers_pmd_of(page) {
            self.entry_obstacle(page)
        } else if holds_aligned_range {
            Some(PlaceObstacle::MappingEdge)
        } else if vma.end - vma.start < PMD_PAGES {
            Some(PlaceObstacle::MappingTooShort)
        } else {
            Some(PlaceObstacle::MappingUnaligned)
        }
    }
}

impl Kernel {
    /// What the page's PMD entry has in the way.
    fn entry_obstacle(&self, page: u64) -> Option<PlaceObstacle> {
        match self.tables.entry(pmd_of(page)) {
            PmdEntry::None => None,
            PmdEntry::HugeZero => (self.config.rules.huge_zero_write == HugeZeroWrite::SplitPmd)
                .then_some(PlaceObstacle::HugeZeroPageSplit),
            PmdEntry::Table(table) => Some(match table.origin {
                TableOrigin::SmallPage => PlaceObstacle::PagesPresent,
                TableOrigin::HugePage => PlaceObstacle::HugePageSplit,
                TableOrigin::HugeZeroPage => PlaceObstacle::HugeZeroPageSplit,
                TableOrigin::GuardPage => PlaceObstacle::GuardPage,
                TableOrigin::Unmodelled => PlaceObstacle::OtherMappingPresent,
            }),
            PmdEntry::Huge(_) | PmdEntry::Hugetlb { .. } => Some(PlaceObstacle::PagesPresent),
        }
    }
}

impl MappingSplit {
    /// The first difference of two mappings; `None` if only their histories differ.
    fn between(a: &Vma, b: &Vma) -> Option<Self> {
        let (a, b) = (a.flags, b.flags);
        [
            (a.protection != b.protection, Self::Protection),
            (a.thp != b.thp, Self::HugePageAdvice),
            (a.locked != b.locked, Self::Lock),
            (a.other.is_dont_fork() != b.other.is_dont_fork(), Self::ForkAdvice),
            (a.other.is_wiped_on_fork() != b.other.is_wiped_on_fork(), Self::ForkAdvice),
            (a.other != b.other, Self::OtherAdvice),
            (a.name != b.name, Self::Name),
        ]
        .into_iter()
        .find_map(|(differs, split)| differs.then_some(split))
    }
}

impl Vma {
    /// Whether two adjacent mappings hold the same kind of memory at contiguous offsets, as the parts of a split mapping
    /// do.
    fn is_split_from(&self, other: &Self) -> bool {
        let is_anonymous = |vma: &Self| !vma.is_unmodelled() && !vma.flags.hugetlb;
        let is_same_file = self.flags.device == other.flags.device;
        is_anonymous(self) && is_anonymous(other) && is_same_file && self.displacement == other.displacement
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
        let (setting, place) = (Some(SettingObstacle::AdvisedAgainst), Some(PagesPresent));
        let both = Obstacles { setting, place, split: None };
        assert_eq!([3073, 3601].map(|page| kernel.obstacles(page)), [Obstacles { setting: None, ..both }, both]);
    }

    /// Advised memory of two PMD ranges, from page 512 on.
    fn advised(config: KernelConfig) -> Kernel {
        let mut kernel = Kernel::new(config);
        kernel.map(512..1536, MapFlags::READ_WRITE).result.unwrap();
        kernel.advise(512..1536, Advice::HugePage).result.unwrap();
        kernel
    }

    const WRITE: Access = Access::Write(Content::NonZero);

    #[test]
    fn page_tables_are_named_by_what_made_them() {
        let place = |kernel: &mut Kernel, page| kernel.obstacles(page).place;
        let mut kernel = advised(KernelConfig::default());
        kernel.advise(600..601, Advice::GuardInstall).result.unwrap();
        assert_eq!(place(&mut kernel, 512), Some(PlaceObstacle::GuardPage));
        kernel.touch(1024, WRITE).unwrap();
        kernel.advise(1030..1031, Advice::DontNeed).result.unwrap();
        assert_eq!(place(&mut kernel, 1030), Some(PlaceObstacle::HugePageSplit));

        let mut kernel = advised(KernelConfig::default());
        kernel.touch(512, Access::Read).unwrap();
        assert_eq!(place(&mut kernel, 513), None, "a write replaces the huge zero page");
        kernel.advise(520..521, Advice::DontNeed).result.unwrap();
        assert_eq!([513, 520].map(|page| place(&mut kernel, page)), [Some(PlaceObstacle::HugeZeroPageSplit); 2]);
        kernel.map_unmodelled(1200..1300).unwrap();
        kernel.touch_unmodelled(1250);
        kernel.map(1200..1300, MapFlags::READ_WRITE).result.unwrap();
        kernel.advise(1200..1300, Advice::HugePage).result.unwrap();
        assert_eq!(place(&mut kernel, 1200), Some(PlaceObstacle::OtherMappingPresent));

        let old = KernelConfig { rules: crate::Rules::of(crate::KernelVersion::V6_12), ..KernelConfig::default() };
        let mut kernel = advised(old);
        kernel.touch(512, Access::Read).unwrap();
        assert_eq!(place(&mut kernel, 512), Some(PlaceObstacle::HugeZeroPageSplit), "this version splits it");
    }

    #[test]
    fn copies_after_a_fork_are_named() {
        let mut kernel = advised(KernelConfig::default());
        kernel.touch(512, WRITE).unwrap();
        let mut child = kernel.fork();
        for page in [512, 513] {
            assert_eq!(kernel.obstacles(page).place, Some(PlaceObstacle::SharedAfterFork));
            assert_eq!(kernel.touch(page, WRITE).unwrap().map(|install| install.pages), Some(1));
        }
        assert_eq!(child.obstacles(700).place, Some(PlaceObstacle::SharedAfterFork));
    }

    #[test]
    fn a_split_mapping_names_the_split() {
        type Cut = fn(&mut Kernel);
        let split = |cut: Cut| {
            let mut kernel = advised(KernelConfig::default());
            cut(&mut kernel);
            kernel.obstacles(800)
        };
        let cases: [(Cut, MappingSplit); 6] = [
            (|kernel| kernel.protect(512..600, Protection::Read).unwrap(), MappingSplit::Protection),
            (|kernel| kernel.advise(512..600, Advice::NoHugePage).result.unwrap(), MappingSplit::HugePageAdvice),
            (|kernel| kernel.advise(512..600, Advice::DontFork).result.unwrap(), MappingSplit::ForkAdvice),
            (|kernel| kernel.advise(512..600, Advice::DontDump).result.unwrap(), MappingSplit::OtherAdvice),
            (|kernel| kernel.lock(512..600, true).result.unwrap(), MappingSplit::Lock),
            (|kernel| kernel.name(512..600, Some(1)).unwrap(), MappingSplit::Name),
        ];
        for (cut, cause) in cases {
            let obstacles = split(cut);
            assert_eq!((obstacles.place, obstacles.split), (Some(PlaceObstacle::MappingEdge), Some(cause)));
        }
        assert_eq!(split(|kernel| kernel.unmap(512..600).unwrap()).split, None, "nothing is left of the other part");
    }

    #[test]
    fn populated_pages_have_the_obstacles_of_touches() {
        let mut kernel = kernel(ThpMode::Madvise);
        kernel.keep_populated();
        kernel.map(0..1024, MapFlags { populate: true, ..MapFlags::READ_WRITE }).result.unwrap();
        kernel.map(2048..2560, MapFlags::READ_WRITE).result.unwrap();
        kernel.advise(2048..2560, Advice::HugePage).result.unwrap();
        kernel.advise(2048..2560, Advice::PopulateWrite).result.unwrap();
        let populated = kernel.take_populated();
        assert_eq!(populated.len(), 1025);
        let settings = populated.iter().map(|populated| populated.obstacles.setting);
        assert_eq!(settings.filter(|setting| *setting == Some(SettingObstacle::NotAdvised)).count(), 1024);
        assert!(populated[1024].obstacles.is_empty() && populated[1024].install.pages == 512);
        assert_eq!(kernel.take_populated(), []);
    }
}
