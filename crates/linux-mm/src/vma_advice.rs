//! Advice that only sets a flag of a mapping. Such flags decide which mappings merge (R6), and what a child gets (R31).

use std::ops::Range;

use super::Kernel;
use super::advise::Advice;
use super::at_start::KnownTraits;
use super::outcome::Errno;
use super::vma::{Vma, VmaFlags};

/// The flags of a mapping that advice other than (NO)HUGEPAGE sets, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OtherAdvice(u8);

impl OtherAdvice {
    /// VM_DONTCOPY.
    const DONT_FORK: u8 = 1;
    /// VM_WIPEONFORK.
    const WIPE_ON_FORK: u8 = 1 << 1;
    /// VM_DONTDUMP.
    const DONT_DUMP: u8 = 1 << 2;
    /// VM_RAND_READ.
    const RANDOM: u8 = 1 << 3;
    /// VM_SEQ_READ.
    const SEQUENTIAL: u8 = 1 << 4;
    /// VM_MERGEABLE.
    const MERGEABLE: u8 = 1 << 5;
    /// The flags of a new `MAP_DROPPABLE` mapping. VM_DROPPABLE itself is no advice: it stays.
    pub const DROPPABLE: Self = Self(Self::VM_DROPPABLE | Self::WIPE_ON_FORK | Self::DONT_DUMP);
    const VM_DROPPABLE: u8 = 1 << 6;

    /// The flags of a new mapping and those that calls gave it before it was observed.
    pub fn known(new: Self, traits: &KnownTraits) -> Self {
        let known = [
            (traits.dont_fork, Self::DONT_FORK),
            (traits.wipe_on_fork, Self::WIPE_ON_FORK),
            (traits.dont_dump, Self::DONT_DUMP),
            (traits.random, Self::RANDOM),
            (traits.sequential, Self::SEQUENTIAL),
            (traits.mergeable, Self::MERGEABLE),
        ];
        Self(known.into_iter().filter(|(is_set, _)| *is_set).fold(new.0, |flags, (_, flag)| flags | flag))
    }

    /// Whether the mapping was made with `MAP_DROPPABLE`.
    pub fn is_droppable(self) -> bool {
        self.0 & Self::VM_DROPPABLE != 0
    }

    /// Whether a child does not get the mapping.
    pub fn is_dont_fork(self) -> bool {
        self.0 & Self::DONT_FORK != 0
    }

    /// Whether a child gets the mapping without its pages.
    pub fn is_wiped_on_fork(self) -> bool {
        self.0 & Self::WIPE_ON_FORK != 0
    }

    /// Whether a child gets the pages.
    pub fn is_copied_by_fork(self) -> bool {
        self.0 & (Self::DONT_FORK | Self::WIPE_ON_FORK) == 0
    }

    /// The flags after `advice`; `None` for advice that sets none of them.
    fn after(self, advice: Advice) -> Option<Self> {
        let (cleared, set) = match advice {
            Advice::DontFork => (0, Self::DONT_FORK),
            Advice::DoFork => (Self::DONT_FORK, 0),
            Advice::WipeOnFork => (0, Self::WIPE_ON_FORK),
            Advice::KeepOnFork => (Self::WIPE_ON_FORK, 0),
            Advice::DontDump => (0, Self::DONT_DUMP),
            Advice::DoDump => (Self::DONT_DUMP, 0),
            Advice::Normal => (Self::RANDOM | Self::SEQUENTIAL, 0),
            Advice::Random => (Self::SEQUENTIAL, Self::RANDOM),
            Advice::Sequential => (Self::RANDOM, Self::SEQUENTIAL),
            Advice::Mergeable => (0, Self::MERGEABLE),
            Advice::Unmergeable => (Self::MERGEABLE, 0),
            _ => return None,
        };
        Some(Self(self.0 & !cleared | set))
    }
}

impl Kernel {
    /// Applies advice that sets a flag of the mapping. Other advice has no effect.
    ///
    /// EINVAL for `WipeOnFork` on a mapping with a file, and for `KeepOnFork` on a droppable one.
    pub(super) fn advise_flag(&mut self, vma: &Vma, part: &Range<u64>, advice: Advice) -> Result<(), Errno> {
        let Some(other) = vma.flags.other.after(advice) else { return Ok(()) };
        match advice {
            Advice::KeepOnFork if vma.flags.other.is_droppable() => Err(Errno::Invalid),
            Advice::WipeOnFork if vma.has_file() => Err(Errno::Invalid),
            // KSM skips hugetlb and droppable memory (`vma_ksm_compatible` in mm/ksm.c).
            Advice::Mergeable if vma.flags.hugetlb || vma.flags.other.is_droppable() => Ok(()),
            _ => self.advise_flags(vma, part, VmaFlags { other, ..vma.flags }),
        }
    }

    /// prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME): names the anonymous mappings in `range`, or removes their names. Equal
    /// numbers stand for equal names. Mappings with different names do not merge. A moved or copied mapping keeps its
    /// name. Exists from Linux 5.17 on, in kernels built with CONFIG_ANON_VMA_NAME.
    ///
    /// Errors: EBADF at the first mapping that is not anonymous. ENOMEM for a hole, after the rest has been named. EINVAL
    /// for a reversed range. EAGAIN if a split would exceed `max_map_count`.
    pub fn name(&mut self, range: Range<u64>, name: Option<u32>) -> Result<(), Errno> {
        if range.start > range.end {
            return Err(Errno::Invalid);
        }
        self.for_each_mapping(&range, |kernel, vma, part| {
            if vma.has_file() {
                return Err(Errno::BadFile);
            }
            kernel.advise_flags(vma, part, VmaFlags { name, ..vma.flags })
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Access, Advice, Backing, Content, Errno, Kernel, KernelConfig, LockFlags, MapFlags, Protection, RemapSource,
        ThpConfig, ThpMode,
    };

    /// Not shown by scripts on kernels without CONFIG_ANON_VMA_NAME. The counts follow from `madvise_vma_anon_name` and
    /// `is_mergeable_vma` (mm/madvise.c, mm/vma.c).
    #[test]
    fn only_mappings_with_equal_names_merge() {
        let mut kernel = Kernel::new(KernelConfig::default());
        kernel.map(0..64, MapFlags::READ_WRITE).result.unwrap();
        assert_eq!(kernel.name(0..16, Some(1)), Ok(()));
        assert_eq!(kernel.name(16..32, Some(2)), Ok(()));
        assert_eq!(kernel.vma_count(), 3);
        assert_eq!(kernel.name(16..32, Some(1)), Ok(()));
        assert_eq!(kernel.vma_count(), 2);
        kernel.map(64..80, MapFlags::READ_WRITE).result.unwrap();
        assert_eq!(kernel.vma_count(), 2, "a new mapping merges with one without a name");
        kernel.remap(0, 16, 128, RemapSource::Unmapped).unwrap();
        kernel.map(144..160, MapFlags::READ_WRITE).result.unwrap();
        assert_eq!(kernel.vma_count(), 4, "a moved mapping keeps its name");
        assert_eq!(kernel.name(0..160, None), Err(Errno::NoMemory), "a hole");
        assert_eq!(kernel.vma_count(), 2);
        kernel.map_unmodelled(20..30).unwrap();
        assert_eq!(kernel.name(16..64, Some(1)), Err(Errno::BadFile));
        assert_eq!(kernel.vma_count(), 4, "the part before the file is named");
    }

    #[test]
    fn memory_of_the_zero_device_merges_with_nothing_else() {
        let mut kernel = Kernel::new(KernelConfig { thp: ThpConfig::new(ThpMode::Always), ..KernelConfig::default() });
        let device = MapFlags { backing: Backing::ZeroDevice, ..MapFlags::READ_WRITE };
        kernel.map(0..512, MapFlags::READ_WRITE).result.unwrap();
        kernel.map(512..1024, device).result.unwrap();
        kernel.map(1024..1536, device).result.unwrap();
        assert_eq!(kernel.mappings(0..1536), [0..512, 512..1024, 1024..1536]);
        kernel.touch(600, Access::Write(Content::NonZero)).unwrap();
        assert_eq!((kernel.rss_pages(), kernel.counters().faults), (512, 1), "it is anonymous memory");
        kernel.protect(600..700, Protection::Read).unwrap();
        kernel.protect(600..700, Protection::ReadWrite).unwrap();
        assert_eq!(kernel.vma_count(), 3, "its parts merge again");
        assert_eq!(kernel.advise(512..1024, Advice::WipeOnFork).result, Err(Errno::Invalid));
        assert_eq!(kernel.name(512..1024, Some(1)), Err(Errno::BadFile));
        assert_eq!(kernel.fork().mappings(0..1536), [0..512, 512..1024, 1024..1536]);
    }

    #[test]
    fn droppable_memory_is_wiped_on_fork_and_never_locked() {
        let mut kernel = Kernel::new(KernelConfig::default());
        let droppable = MapFlags { backing: Backing::Droppable, populate: true, ..MapFlags::READ_WRITE };
        kernel.map(0..64, droppable).result.unwrap();
        kernel.map(64..80, MapFlags::READ_WRITE).result.unwrap();
        assert_eq!((kernel.rss_pages(), kernel.vma_count()), (64, 2));
        assert_eq!(kernel.advise(0..64, Advice::KeepOnFork).result, Err(Errno::Invalid));
        assert_eq!(kernel.lock(0..64, false).result, Ok(()));
        assert_eq!(kernel.locked_pages(), 0);
        let child = kernel.fork();
        assert_eq!((child.rss_pages(), child.vma_count()), (0, 2));
        let future = LockFlags { current: false, future: true, on_fault: false };
        assert_eq!(kernel.lock_all(future).result, Ok(()));
        kernel.map(128..192, droppable).result.unwrap();
        assert_eq!(kernel.locked_pages(), 0);
    }

    #[test]
    fn a_child_gets_no_mapping_or_an_empty_one() {
        let mut kernel = Kernel::new(KernelConfig::default());
        let populate = MapFlags { populate: true, ..MapFlags::READ_WRITE };
        kernel.map(0..64, populate).result.unwrap();
        kernel.advise(0..16, Advice::DontFork).result.unwrap();
        kernel.advise(16..32, Advice::WipeOnFork).result.unwrap();
        let mut child = kernel.fork();
        assert_eq!((child.vma_count(), child.rss_pages()), (2, 32));
        assert_eq!(child.mappings(0..64), [16..32, 32..64]);
        assert_eq!(child.fork().mappings(0..64), [16..32, 32..64]);
        child.advise(0..64, Advice::KeepOnFork).result.unwrap_err();
        assert_eq!(child.mappings(0..64), [16..32, 32..64], "only one of them has memory inherited from the parent");
    }
}
