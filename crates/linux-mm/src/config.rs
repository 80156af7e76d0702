//! What a simulated kernel is told: modes an administrator sets, limits, and the rules of its version.

use serde::Serialize;

use super::khugepaged::Khugepaged;
use super::rules::{MidSizes, Rules};

/// The order (log2 of its pages) of a folio that fills a 2 MiB block.
pub const PMD_ORDER: usize = 9;

/// `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThpMode {
    /// Every anonymous mapping may get huge pages.
    Always,
    /// Only mappings advised with [`Advice::HugePage`](super::Advice::HugePage).
    Madvise,
    /// None.
    Never,
}

/// `/sys/kernel/mm/transparent_hugepage/defrag`: how hard a fault looks for a huge page where none is free (R2). The model
/// has always one, so this changes nothing in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Defrag {
    /// It makes one at once.
    Always,
    /// It has one made later.
    Defer,
    /// At once for advised mappings, later for others.
    DeferMadvise,
    /// At once for advised mappings.
    Madvise,
    /// It does not.
    Never,
}

/// `vm.overcommit_memory`, as far as it shows before its limit is reached (R18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Overcommit {
    /// 0 or 1: `MAP_NORESERVE` is heeded.
    Allowed,
    /// 2: `MAP_NORESERVE` means nothing, but for hugetlb. That the limit refuses memory is not modelled: it is the
    /// whole machine's.
    Never,
}

/// `/sys/kernel/mm/transparent_hugepage/hugepages-<size>kB/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeMode {
    /// Follow the global [`ThpMode`].
    Inherit,
    /// Every mapping, whatever the global mode says.
    Always,
    /// Advised mappings, whatever the global mode says.
    Madvise,
    /// Never this size.
    Never,
}

/// Which large-folio sizes a fault may install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThpConfig {
    /// The global switch.
    pub global: ThpMode,
    /// One switch per folio order, 0 (unused) to [`PMD_ORDER`]: order 2 is 16 KiB, order 9 is 2 MiB.
    pub sizes: [SizeMode; PMD_ORDER + 1],
}

impl ThpConfig {
    /// The kernel's defaults under `global`: 2 MiB inherits, every smaller size is never used (R3).
    pub fn new(global: ThpMode) -> Self {
        let mut sizes = [SizeMode::Never; PMD_ORDER + 1];
        sizes[PMD_ORDER] = SizeMode::Inherit;
        Self { global, sizes }
    }

    /// The folio orders a fault may install, as a bit set, in a mapping with this advice (R1b, R3).
    fn orders(&self, advice: ThpAdvice) -> u16 {
        if advice == ThpAdvice::NoHuge {
            return 0;
        }
        let advised = advice == ThpAdvice::Huge;
        let inherited = match self.global {
            ThpMode::Always => true,
            ThpMode::Madvise => advised,
            ThpMode::Never => false,
        };
        let enabled = |mode: SizeMode| match mode {
            SizeMode::Inherit => inherited,
            SizeMode::Always => true,
            SizeMode::Madvise => advised,
            SizeMode::Never => false,
        };
        (1..=PMD_ORDER).filter(|&order| enabled(self.sizes[order])).fold(0, |set, order| set | 1 << order)
    }
}

/// What a mapping was told about huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ThpAdvice {
    /// Nothing.
    #[default]
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// Everything a [`Kernel`](super::Kernel) is told when it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelConfig {
    /// Transparent huge pages.
    pub thp: ThpConfig,
    /// `transparent_hugepage/use_zero_page`: read faults may map the huge zero page (R4c).
    pub use_zero_page: bool,
    /// `transparent_hugepage/defrag`.
    pub defrag: Defrag,
    /// `vm.overcommit_memory`.
    pub overcommit: Overcommit,
    /// `vm.max_map_count` (R14).
    pub max_map_count: u64,
    /// Mappings the process has outside the simulated ranges; they count towards `max_map_count`.
    pub vmas_elsewhere: u64,
    /// Huge pages in the hugetlb pool, `None` for as many as asked for (R13).
    pub hugetlb_pool: Option<u64>,
    /// What runs beside the process; it bounds predictions, and changes none.
    pub khugepaged: Khugepaged,
    /// How this kernel version behaves.
    pub rules: Rules,
}

impl KernelConfig {
    /// The folio orders a fault may install, as a bit set, in a mapping with this advice (R1b, R3).
    pub(super) fn orders(&self, advice: ThpAdvice) -> u16 {
        match self.rules.mid_sizes {
            MidSizes::Present => self.thp.orders(advice),
            // Such kernels have the global mode alone.
            MidSizes::Absent => ThpConfig::new(self.thp.global).orders(advice),
        }
    }
}

impl Default for KernelConfig {
    /// Linux 6.18 as it comes: THP by madvise, 65 530 mappings, no mapping elsewhere, a hugetlb pool without end.
    fn default() -> Self {
        Self {
            thp: ThpConfig::new(ThpMode::Madvise),
            use_zero_page: true,
            defrag: Defrag::Madvise,
            overcommit: Overcommit::Allowed,
            max_map_count: 65_530,
            vmas_elsewhere: 0,
            hugetlb_pool: None,
            khugepaged: Khugepaged::default(),
            rules: Rules::LINUX_6_18,
        }
    }
}
