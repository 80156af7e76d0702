//! A model of Linux anonymous memory. It executes page operations and reports faults, resident pages, huge pages and
//! page tables.
//!
//! The model follows the kernel's rules exactly. Comments refer to them by name, such as R13a; the project's
//! documentation has the table of rules. `hksim rules` (crate `hksim-conformance`) compares the model with the running
//! kernel after every operation. The model covers private anonymous memory of a process and of its forked children; of
//! other mappings it knows the page tables only ([`Kernel::map_unmodelled`]). It leaves out what is not deterministic:
//! memory pressure other than at a control group's limit, allocation failure and the times at which khugepaged scans.
//!
//! Addresses are given as numbers of 4 KiB pages. One [`Kernel`] is one address space:
//!
//! ```
//! use hksim_linux_mm::{Access, Advice, Content, InstallKind, Kernel, KernelConfig, MapFlags};
//!
//! let mut kernel = Kernel::new(KernelConfig::default());
//! kernel.map(0..1024, MapFlags::READ_WRITE).result?;
//! kernel.advise(0..1024, Advice::HugePage).result?;
//! let install = kernel.touch(7, Access::Write(Content::NonZero)).unwrap();
//! assert_eq!(install.map(|install| install.kind), Some(InstallKind::Thp));
//! assert_eq!((kernel.rss_pages(), kernel.counters().faults), (512, 1));
//! # Ok::<(), hksim_linux_mm::Errno>(())
//! ```
//!
//! # Methods of `Kernel` by topic
//!
//! - Start: [`new`](Kernel::new), [`with_arena`](Kernel::with_arena), [`config`](Kernel::config) (`lib.rs`,
//!   `script/execute.rs`)
//! - A process that is known from some moment on: [`beside`](Kernel::beside), [`know_mapping`](Kernel::know_mapping),
//!   [`know_pages`](Kernel::know_pages), [`know_write_protected`](Kernel::know_write_protected) (`lib.rs`, `at_start.rs`)
//! - Map and unmap: [`map`](Kernel::map), [`unmap`](Kernel::unmap), [`grow_heap`](Kernel::grow_heap),
//!   [`name`](Kernel::name) (`map.rs`, `vma_advice.rs`)
//! - Access memory: [`touch`](Kernel::touch), [`set_content`](Kernel::set_content) (`fault.rs`), and many pages at once,
//!   [`touch_absent`](Kernel::touch_absent) (`fault_run.rs`)
//! - Advise: huge pages, dropping, collapse, populate, guard pages: [`advise`](Kernel::advise) (`advise.rs`)
//! - Move and resize: [`remap`](Kernel::remap), [`mremap`](Kernel::mremap), [`resize`](Kernel::resize) (`remap.rs`)
//! - Protect and lock: [`protect`](Kernel::protect), [`lock`](Kernel::lock), [`unlock`](Kernel::unlock),
//!   [`lock_all`](Kernel::lock_all), [`unlock_all`](Kernel::unlock_all), [`first_locked`](Kernel::first_locked),
//!   [`locked_pages`](Kernel::locked_pages) (`protect.rs`, `lock.rs`)
//! - Fork: [`fork`](Kernel::fork) (`fork.rs`)
//! - The process: [`disable_thp`](Kernel::disable_thp), [`installs_thp_denied`](Kernel::installs_thp_denied),
//!   [`grow_stack`](Kernel::grow_stack), [`place_arguments`](Kernel::place_arguments) (`process_policy.rs`, `stack.rs`)
//! - Addresses that mmap would choose: [`unmapped_area`](Kernel::unmapped_area), [`highest_gap`](Kernel::highest_gap)
//!   (`place.rs`)
//! - Files and shared memory, of which only the page tables are modelled: [`map_unmodelled`](Kernel::map_unmodelled),
//!   [`touch_unmodelled`](Kernel::touch_unmodelled) (`unmodelled.rs`)
//! - State of memory: [`rss_pages`](Kernel::rss_pages), [`resident_bytes`](Kernel::resident_bytes),
//!   [`huge_pages`](Kernel::huge_pages), [`huge_pages_in_smaps`](Kernel::huge_pages_in_smaps),
//!   [`hugetlb_pages`](Kernel::hugetlb_pages), [`lazy_free_pages`](Kernel::lazy_free_pages),
//!   [`folio_pages`](Kernel::folio_pages),
//!   [`page_table_bytes`](Kernel::page_table_bytes), [`vma_count`](Kernel::vma_count), [`mappings`](Kernel::mappings)
//!   (`state.rs`)
//! - State of single pages: [`page_state`](Kernel::page_state), [`page_states`](Kernel::page_states),
//!   [`pmd_state`](Kernel::pmd_state), [`folio_pages_outside`](Kernel::folio_pages_outside) (`state.rs`)
//! - Totals since the start: [`counters`](Kernel::counters), [`operations`](Kernel::operations),
//!   [`refaults`](Kernel::refaults) (`lib.rs`, `work.rs`)
//! - Why no huge page: [`obstacles`](Kernel::obstacles) (`obstacles.rs`)
//! - khugepaged: a full scan, [`khugepaged_scan`](Kernel::khugepaged_scan), what it would change,
//!   [`khugepaged_settled`](Kernel::khugepaged_settled) and [`collapsed_by_scan`](Kernel::collapsed_by_scan), and bounds by time,
//!   [`khugepaged_bound`](Kernel::khugepaged_bound) and [`khugepaged_at_end`](Kernel::khugepaged_at_end) (`full_scan.rs`,
//!   `khugepaged.rs`)
//! - Pages that system calls made present: [`keep_populated`](Kernel::keep_populated),
//!   [`take_populated`](Kernel::take_populated) (`populate.rs`)
//! - Writes that raise no fault: [`writable_without_fault`](Kernel::writable_without_fault) (`unseen_writes.rs`)
//! - The limit of a memory control group: [`group_pressure`](Kernel::group_pressure),
//!   [`charged_bytes`](Kernel::charged_bytes), [`charge_elsewhere`](Kernel::charge_elsewhere),
//!   [`note_charge`](Kernel::note_charge) (`charge.rs`)
//! - Page-op scripts: [`execute`](Kernel::execute) (`script/execute.rs`)
//!
//! To read the code, start with `fault.rs` (what one access installs) and `advise.rs`, then follow a call into `zap.rs`
//! (dropping), `split.rs`, `collapse.rs` or `populate.rs`. `rules.rs` lists what differs between versions.

mod advise;
mod aging;
mod at_start;
mod by_kind;
mod charge;
mod collapse;
mod config;
mod entry;
mod fault;
mod fault_run;
mod flush;
mod folio;
mod fork;
mod full_scan;
mod guard;
mod hugetlb;
mod khugepaged;
mod lock;
mod map;
mod memory;
mod memory_limit;
mod mode_words;
mod obstacles;
mod outcome;
mod page_tables;
mod place;
mod populate;
mod process_policy;
mod protect;
mod refaults;
mod remap;
mod returned;
mod rules;
mod rules_by_version;
mod scan_plan;
pub mod script;
mod size_modes;
mod span;
mod split;
mod stack;
mod state;
#[cfg(test)]
mod testing;
mod unmodelled;
mod unseen_writes;
mod version;
mod vma;
mod vma_advice;
mod vma_map;
mod work;
mod write_protected;
mod zap;

pub use advise::Advice;
pub use at_start::{KnownPages, KnownTraits};
pub use by_kind::{ByKind, Installs};
pub use charge::{GroupPressure, OutOfMemory, least_limit};
pub use config::{Defrag, KernelConfig, Overcommit, PMD_ORDER, SizeMode, ThpConfig, ThpMode};
pub use entry::{Access, Content};
pub use full_scan::{FullScan, KhugepagedSettled};
pub use khugepaged::{Khugepaged, KhugepagedAtEnd, KhugepagedBound, KhugepagedWork};
pub use lock::{LockFlags, Locked};
pub use map::{Backing, MapFlags};
pub use memory_limit::{LimitOutcome, MemoryLimit};
pub use obstacles::{MappingSplit, Obstacles, PlaceObstacle, SettingObstacle};
pub use outcome::{Counters, Errno, Install, InstallKind, InstallRun, Outcome, Signal};
pub use populate::Populated;
pub use process_policy::ThpDisable;
pub use refaults::{Refaults, RefaultsByKind};
pub use remap::RemapSource;
pub use rules::{
    AnonVmaMerge, Collapse, DontneedLocked, DontunmapSource, EmptyPteTables, GuardPages, HeapMerge, HugeZeroWrite,
    HugetlbDontneed, HugetlbPopulateFaults, KhugepagedSharedTest, LargeFolioReuse, MadvFreeSharedTest, MadvFreeSplit,
    MadvPopulateHoles, MadviseMapCountErrno, MapStack, MmapAlignment, MmapFixedHugetlbErrno, MprotectCommitCharge,
    MprotectPmdDirty, MprotectPteDirty, MremapGrowMerge, MremapPageTables, MremapRange, MthpSupport, NewVmaMerge,
    PmdSplitDirty, Rules, SmapsProtNoneHuge, WriteAfterMprotect, ZeroFilledOnSplit,
};
pub use size_modes::{SizeModes, show_sizes, usual_sizes};
pub use span::{ADDRESS_SPACE_PAGES, PAGE_BYTES, PMD_PAGES};
pub use state::{PageState, PmdState, StateRun};
pub use version::{Fit, KernelVersion};
pub use vma::Protection;
pub use work::{FoliosBySize, PageOperations};

use std::collections::BTreeSet;

use charge::{Group, GroupCharge};
use config::Orders;
use flush::Flush;
use folio::SpaceId;
use hugetlb::HugetlbPool;
use memory::SharedMemory;
use page_tables::PageTables;
use returned::Returned;
use vma_map::VmaMap;

/// One address space under one kernel. A clone continues on its own from the same state. It is no relative: the children
/// and parents of the original stay with the original.
#[derive(Clone, Debug)]
pub struct Kernel {
    config: KernelConfig,
    /// Those of `config`.
    orders: Orders,
    vmas: VmaMap,
    tables: PageTables,
    memory: SharedMemory,
    space: SpaceId,
    /// PMD ranges of hugetlb mappings whose reservation was consumed by a page that was dropped later. The reservation
    /// is not restored (R13f).
    reservations_consumed: BTreeSet<u64>,
    counters: Counters,
    operations: PageOperations,
    /// Of the call that runs.
    flush: Flush,
    refaults: RefaultsByKind,
    returned: Returned,
    thp_disable: ThpDisable,
    /// How new mappings are locked (`MCL_FUTURE`).
    lock_future: Locked,
    installs_thp_denied: u64,
    /// What calls populated since the last [`Kernel::take_populated`]; `None` if nobody asks.
    populated: Option<Vec<Populated>>,
    /// `None` without a memory limit.
    charge: Option<Box<GroupCharge>>,
}

impl Kernel {
    /// An empty address space.
    pub fn new(config: KernelConfig) -> Self {
        let memory =
            SharedMemory::new(HugetlbPool::new(config.hugetlb_pool_pages), Group::new(config.memory_limit_bytes));
        Self::in_memory(config, memory)
    }

    /// An empty address space of a process that is already related to this one, and is going to be known
    /// ([`Kernel::know_pages`]): both are in one control group, and pages that each shares with others are the same if they
    /// are at the same address.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::in_memory(self.config.clone(), self.memory.handle())
    }

    fn in_memory(config: KernelConfig, memory: SharedMemory) -> Self {
        Self {
            space: memory.new_space(),
            memory,
            reservations_consumed: BTreeSet::new(),
            vmas: VmaMap::new(config.rules.anon_vma_merge),
            charge: config.memory_limit_bytes.map(|_| Box::default()),
            orders: Orders::of(&config),
            config,
            tables: PageTables::default(),
            counters: Counters::default(),
            operations: PageOperations::default(),
            flush: Flush::default(),
            refaults: RefaultsByKind::default(),
            returned: Returned::default(),
            thp_disable: ThpDisable::Off,
            lock_future: Locked::No,
            installs_thp_denied: 0,
            populated: None,
        }
    }

    /// The configuration this kernel was created with.
    pub fn config(&self) -> &KernelConfig {
        &self.config
    }

    /// Totals since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
