//! Configuration of a simulated kernel: administrator settings, limits, and the rules of its version.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::khugepaged::Khugepaged;
use super::rules::{MthpSupport, Rules};

/// Order (log2 of the number of pages) of a folio that a PMD entry maps: 2 MiB.
pub const PMD_ORDER: usize = 9;

/// `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThpMode {
    /// Every anonymous mapping may get huge pages.
    Always,
    /// Only mappings advised with [`Advice::HugePage`](super::Advice::HugePage) may get huge pages.
    Madvise,
    /// No mapping gets huge pages.
    Never,
}

/// `/sys/kernel/mm/transparent_hugepage/defrag`: how hard a fault tries to get a huge page when none is free (R2). In
/// the model a huge page is always free, so this setting has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Defrag {
    /// Reclaim and compact directly, in the fault.
    Always,
    /// Wake kswapd and kcompactd.
    Defer,
    /// Reclaim and compact directly for advised mappings, and in the background for others. Earlier results spell it
    /// without the `+`.
    #[serde(rename = "defer+madvise", alias = "defermadvise")]
    DeferMadvise,
    /// Reclaim and compact directly, for advised mappings only.
    Madvise,
    /// Do not try.
    Never,
}

/// `vm.overcommit_memory`. Only its effect on `MAP_NORESERVE` is modelled (R18a).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overcommit {
    /// 0 or 1: the kernel honours `MAP_NORESERVE`.
    Allowed,
    /// 2: the kernel ignores `MAP_NORESERVE`, except for hugetlb. The commit limit itself is not modelled, because it
    /// depends on the whole machine.
    Never,
}

/// `/sys/kernel/mm/transparent_hugepage/hugepages-<size>kB/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeMode {
    /// Follow the global [`ThpMode`].
    Inherit,
    /// Use this size in every mapping, regardless of the global mode.
    Always,
    /// Use this size in advised mappings, regardless of the global mode.
    Madvise,
    /// Never use this size.
    Never,
}

/// Which large-folio sizes a fault may install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThpConfig {
    /// The global switch.
    pub global: ThpMode,
    /// One switch per folio order, 0 (unused) to [`PMD_ORDER`]: order 2 is 16 KiB, order 9 is 2 MiB.
    /// In JSON an object by size: `16K` to `2M`.
    #[serde(serialize_with = "by_size", deserialize_with = "of_sizes")]
    pub sizes: [SizeMode; PMD_ORDER + 1],
}

/// The smallest order of a large anonymous folio: 16 KiB.
const LARGE_ORDER_MIN: usize = 2;

/// The size of a folio order, as text: `16K` to `2M`.
pub(crate) fn size_name(order: usize) -> String {
    match 4 << order {
        kib @ ..1024 => format!("{kib}K"),
        kib => format!("{}M", kib / 1024),
    }
}

fn by_size<S: Serializer>(sizes: &[SizeMode; PMD_ORDER + 1], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map((LARGE_ORDER_MIN..=PMD_ORDER).map(|order| (size_name(order), sizes[order])))
}

fn of_sizes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[SizeMode; PMD_ORDER + 1], D::Error> {
    let named = BTreeMap::<String, SizeMode>::deserialize(deserializer)?;
    let mut sizes = [SizeMode::Never; PMD_ORDER + 1];
    for (name, mode) in named {
        let order = (LARGE_ORDER_MIN..=PMD_ORDER).find(|&order| size_name(order) == name);
        let order = order.ok_or_else(|| D::Error::custom(format!("`{name}` is not a size of huge pages")))?;
        sizes[order] = mode;
    }
    Ok(sizes)
}

impl ThpConfig {
    /// The kernel's defaults for the sizes: 2 MiB inherits `global`, and no smaller size is used (R3).
    pub fn new(global: ThpMode) -> Self {
        let mut sizes = [SizeMode::Never; PMD_ORDER + 1];
        sizes[PMD_ORDER] = SizeMode::Inherit;
        Self { global, sizes }
    }

    /// The folio orders that a fault may install in a mapping that is advised for huge pages, or without advice.
    fn orders(&self, advised: bool) -> u16 {
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

/// The huge-page advice on a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ThpAdvice {
    /// No advice.
    #[default]
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// Configuration of a [`Kernel`](super::Kernel).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub vmas_outside_heap: u64,
    /// Free huge pages in the hugetlb pool; `None` for an unlimited pool (R13).
    pub hugetlb_pool_pages: Option<u64>,
    /// The limit of the memory control group that the process and its children are in, without swap (R35); `None` for no
    /// group. Part of a page does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// khugepaged's settings. They affect [`Kernel::khugepaged_scan`](super::Kernel::khugepaged_scan) and
    /// [`Kernel::khugepaged_bound`](super::Kernel::khugepaged_bound) only.
    pub khugepaged: Khugepaged,
    /// The behaviour of the kernel version.
    pub rules: Rules,
}

/// The folio orders that a fault may install, as a bit set for each advice (R1b, R3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    unadvised: u16,
    advised: u16,
}

impl Orders {
    /// Those that a configuration allows.
    pub fn of(config: &KernelConfig) -> Self {
        let thp = match config.rules.mthp_support {
            MthpSupport::PerSize => config.thp,
            // Kernels without sizes between 4 KiB and 2 MiB have only the global mode.
            MthpSupport::Unsupported => ThpConfig::new(config.thp.global),
        };
        Self { unadvised: thp.orders(false), advised: thp.orders(true) }
    }

    /// Whether any mapping may have a huge page of 2 MiB.
    pub fn has_pmd(self) -> bool {
        (self.unadvised | self.advised) & (1 << PMD_ORDER) != 0
    }

    /// Those in a mapping with this advice.
    #[inline]
    pub fn with(self, advice: ThpAdvice) -> u16 {
        match advice {
            ThpAdvice::None => self.unadvised,
            ThpAdvice::Huge => self.advised,
            ThpAdvice::NoHuge => 0,
        }
    }
}

impl Default for KernelConfig {
    /// Linux 6.18 with default settings: THP in mode madvise, at most 65 530 mappings, no mappings elsewhere, an
    /// unlimited hugetlb pool.
    fn default() -> Self {
        Self {
            thp: ThpConfig::new(ThpMode::Madvise),
            use_zero_page: true,
            defrag: Defrag::Madvise,
            overcommit: Overcommit::Allowed,
            max_map_count: 65_530,
            vmas_outside_heap: 0,
            hugetlb_pool_pages: None,
            memory_limit_bytes: None,
            khugepaged: Khugepaged::default(),
            rules: Rules::LINUX_6_18,
        }
    }
}
