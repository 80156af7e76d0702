//! Differences between kernel versions, shown by small scripts. The figures come from each version's source, or from
//! measurements under emulation (`docs/lab/kernel-matrix.md`), not from the model. Other tests also measure those of
//! 6.18.

use hksim_linux_mm::script::{ARENA_PAGES, Script};
use hksim_linux_mm::{Errno, Kernel, KernelConfig, KernelVersion, PageState, Rules, SizeMode};

/// Name, script with `;` between lines, the figure to compare, and its values for 5.15 to 7.2, oldest first.
type Case = (&'static str, &'static str, Figure, [i64; 7]);

#[derive(Clone, Copy, Debug)]
enum Figure {
    /// Faults of the last operation.
    Faults,
    /// Return value of the last operation: 0 or -1.
    Ret,
    /// Error number of the last operation.
    ErrnoNumber,
    RssPages,
    HugePages,
    /// Lazily freed pages.
    LazyPages,
    /// Pages of larger folios, mapped one by one.
    FolioPages,
    Mappings,
    PageTablesKib,
}

use Figure::{ErrnoNumber, Faults, FolioPages, HugePages, LazyPages, Mappings, PageTablesKib, Ret, RssPages};

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("first write to the huge zero page", "adv HUGEPAGE 0 512; r 0 1 1; w 0 1 1", RssPages, [1, 1, 1, 1, 512, 512, 512]),
    ("the whole huge zero page written", "adv HUGEPAGE 0 512; r 0 1 1; w 0 512 1", Faults, [512, 512, 512, 512, 1, 1, 1]),
    ("a whole PMD range dropped", "w 0 1 1; adv HUGEPAGE 0 512; adv DONTNEED 0 512; w 0 512 1", Faults,
        [512, 512, 512, 512, 1, 1, 1]),
    ("zeros at a split", "adv HUGEPAGE 0 512; w 0 64 1; adv FREE 0 1", RssPages, [512, 512, 512, 64, 64, 64, 64]),
    ("a write to 16 pages, with 64 KiB folios", "w 0 16 1", Faults, [16, 16, 1, 1, 1, 1, 1]),
    ("a freed folio of 64 KiB", "w 0 1 1; adv FREE 0 16", RssPages, [1, 1, 16, 16, 16, 16, 16]),
    ("collapse of a range with one page", "w 0 1 1; adv COLLAPSE 0 512", HugePages, [0, 1, 1, 1, 1, 1, 1]),
    ("collapse of an empty table", "w 0 1 1; adv DONTNEED 0 1; adv COLLAPSE 0 512", HugePages, [0, 0, 0, 0, 0, 1, 1]),
    ("collapse after a range without a table", "w 3568 1 1; adv COLLAPSE 512 3584", HugePages, [0, 0, 0, 0, 0, 0, 1]),
    ("collapse inside a range", "w 0 1 1; adv COLLAPSE 8 16", Ret, [-1, -1, -1, -1, -1, -1, 0]),
    ("collapse of read-only memory", "w 0 16 1; prot 0 4096 r; adv COLLAPSE 0 512", Ret, [-1, -1, -1, -1, -1, 0, 0]),
    ("a scan of read-only memory", "w 0 16 1; adv HUGEPAGE 0 512; prot 0 4096 r; scan 1", HugePages, [0, 0, 0, 0, 0, 1, 1]),
    ("a scan of pages whose folio is shared elsewhere",
        "adv HUGEPAGE 0 1024; w 0 1024 1; remap 256 512 1536 0; adv DONTFORK 1536 512; forkscan 1", HugePages, [1, 1, 1, 0, 0, 0, 0]),
    ("a scan of pages of which some were freed lazily", "w 0 16 1; adv FREE 0 4; adv HUGEPAGE 0 512; scan 1", HugePages,
        [1, 1, 1, 1, 1, 1, 0]),
    ("a scan with folios of 64 KiB", "r 0 512 1; w 0 1 1; w 40 1 1; scan 1", FolioPages, [0, 0, 0, 0, 0, 0, 32]),
    ("the memory of a scan with folios of 64 KiB", "r 0 512 1; w 0 1 1; w 40 1 1; scan 1", RssPages, [2, 2, 2, 2, 2, 2, 32]),
    ("pages writable again", "w 0 8 1; prot 0 8 r; prot 0 8 w; w 0 8 1", Faults, [8, 0, 0, 0, 0, 0, 0]),
    ("a huge page writable again", "adv HUGEPAGE 0 512; w 0 1 1; prot 0 512 r; prot 0 512 w; w 0 512 1", Faults,
        [1, 1, 0, 0, 0, 0, 0]),
    ("a split huge page writable again is copied where its pages count together",
        "adv HUGEPAGE 0 512; w 0 512 1; prot 8 1 r; prot 0 512 r; prot 0 512 w; w 0 512 1", Faults, [512, 512, 0, 0, 0, 0, 0]),
    ("a touched mapping next to an untouched one", "map 0 16 w N; adv HUGEPAGE 16 16; w 0 1 1; adv HUGEPAGE 0 16", Mappings,
        [3, 3, 3, 3, 3, 2, 2]),
    ("mmap between an untouched mapping and a touched one", "prot 1968 1 r; map 3312 1 w pN; map 1024 1024 w N", Mappings,
        [1, 2, 2, 1, 1, 1, 1]),
    ("a move of several mappings", "w 0 1 1; prot 8 8 r; remap 0 16 1024 0", Ret, [-1, -1, -1, -1, -1, 0, 0]),
    ("a move of a range that ends beyond its mapping", "w 1024 1 1; prot 8 8 r; remap 0 16 1024 0", RssPages, [0, 0, 0, 0, 0, 0, 0]),
    ("a move of an unmapped range", "w 1024 1 1; unmap 0 16; remap 0 16 1024 0", RssPages, [0, 1, 1, 1, 1, 1, 1]),
    ("a hole in a populate", "unmap 16 16; adv POPULATE_WRITE 0 48", RssPages, [32, 32, 32, 16, 16, 16, 16]),
    ("writes to pages that were shared", "adv HUGEPAGE 0 512; w 0 1 1; forkw 0 10 1; w 0 512 1", FolioPages, [1, 1, 1, 0, 0, 502, 502]),
    ("growing up to a neighbour", "w 0 16 1; unmap 16 16; resize 0 16 32", Mappings, [2, 1, 1, 1, 1, 1, 1]),
    ("shrinking an unmapped range", "resize 0 4096 193; resize 456 256 136", Ret, [0, -1, -1, -1, -1, -1, -1]),
    ("hugetlb pages moved", "map 1536 2048 w NH; remap 2560 1 3072 0", Ret, [-1, 0, 0, 0, 0, 0, 0]),
    ("hugetlb pages resized within one", "map 2048 1024 w NH; resize 2560 105 365", Ret, [-1, 0, 0, 0, 0, 0, 0]),
    ("a move of hugetlb pages and the next mapping", "map 1024 1024 w NH; remap 1536 1024 3072 0", ErrnoNumber, [22, 14, 14, 14, 14, 0, 0]),
    ("a refused move unmaps nothing", "map 1536 2048 w NH; remap 2561 1 512 0", Mappings, [4, 3, 3, 3, 3, 3, 3]),
    ("clean entries of a split huge page", "adv HUGEPAGE 0 512; w 0 512 1; prot 8 1 r; w 0 4 1; prot 0 512 r; prot 0 512 w; w 0 512 1",
        Faults, [512, 508, 0, 0, 0, 0, 0]),
    ("freed after the first page was dropped", "adv HUGEPAGE 0 512; w 0 512 1; adv DONTNEED 0 1; adv FREE 232 24", FolioPages,
        [0, 511, 0, 0, 0, 0, 0]),
    ("cold after the first page was dropped", "adv HUGEPAGE 0 512; w 0 512 1; adv DONTNEED 0 1; adv COLD 232 24", FolioPages,
        [0, 0, 0, 0, 0, 0, 0]),
    ("populate of hugetlb", "map 0 2048 w Hp", Faults, [0, 0, 4, 4, 4, 4, 4]),
    ("a huge page written, freed, written again and protected", "adv HUGEPAGE 0 512; w 0 1 1; adv FREE 0 512; w 0 1 1; prot 0 512 r", LazyPages,
        [0, 0, 0, 512, 512, 0, 0]),
    ("a lazily freed huge page without access, in smaps", "adv HUGEPAGE 0 512; w 0 1 1; adv FREE 0 512; prot 0 512 n", LazyPages,
        [512, 0, 512, 512, 512, 512, 512]),
    ("written, freed, written, and protected after a write by an exited child",
        "adv HUGEPAGE 0 512; w 0 1 1; adv FREE 0 512; w 0 1 1; fork 0 1 1; w 0 1 1; prot 0 512 r", LazyPages, [0, 0, 0, 0, 0, 0, 0]),
    ("written, freed, written, and protected after it was shared",
        "adv HUGEPAGE 0 512; w 0 1 1; adv FREE 0 512; w 0 1 1; fork 9 0 1; prot 0 512 r", LazyPages, [0, 0, 0, 0, 0, 0, 0]),
    ("mmap over part of a hugetlb page", "map 1024 512 w NH; map 1024 1 w N", ErrnoNumber, [12, 12, 12, 22, 22, 22, 22]),
    // 7.2 keeps more mappings than the model (kernel-rules.md, "Not in the model").
    ("a source mapping kept next to its copy", "remap 2048 1 1 1", Mappings, [3, 1, 3, 1, 1, 1, 1]),
    ("offsets of a source mapping kept whole", "w 0 16 1; remap 0 16 1024 0; remap 1024 16 2048 1; unmap 1040 16; map 1040 16 w N", Mappings,
        [4, 5, 5, 5, 5, 5, 5]),
    ("a stack in mode madvise, advised again", "map 0 512 w S; w 0 1 1; adv HUGEPAGE 0 512", Mappings, [2, 2, 2, 2, 2, 2, 2]),
    ("locked memory dropped", "w 0 16 1; mlock 0 16 o; adv DONTNEED_LOCKED 0 16", RssPages, [16, 0, 0, 0, 0, 0, 0]),
    ("a stack next to memory with advice against huge pages", "map 0 16 w SN; adv NOHUGEPAGE 16 16", Mappings, [3, 3, 2, 2, 2, 2, 2]),
    ("guard pages", "adv GUARD_INSTALL 0 16; w 0 32 1", RssPages, [32, 32, 32, 32, 16, 16, 16]),
    ("guard pages of a file", "mapfile 0 16; adv GUARD_INSTALL 0 16", Ret, [-1, -1, -1, -1, -1, 0, 0]),
    ("tables moved with the range", "unmap 0 16; unmap 1024 16; w 16 1 1; remap 16 600 1040 1", PageTablesKib,
        [16, 16, 12, 12, 12, 12, 12]),
];

fn config(version: KernelVersion) -> KernelConfig {
    let mut config = KernelConfig { rules: Rules::of(version), ..KernelConfig::default() };
    config.thp.sizes[4] = SizeMode::Always;
    config
}

#[test]
fn each_version_gives_its_expected_figures() {
    for (name, script, figure, expected) in CASES {
        let script: Script = script.replace("; ", "\n").parse().expect("a script");
        let seen = KernelVersion::ALL.map(|version| {
            let mut config = config(version);
            // Other cases run without sizes between 4 KiB and 2 MiB.
            if !name.contains("64 KiB") {
                config.thp.sizes[4] = SizeMode::Never;
            }
            let mut kernel = Kernel::with_arena(config, 1 << 20);
            let mut last = None;
            for step in &script.steps {
                last = Some(kernel.execute(&step.op, 1 << 20));
            }
            let last = last.expect("no script is empty");
            match figure {
                Faults => last.faults as i64,
                Ret => last.ret,
                ErrnoNumber => last.errno.map_or(0, number),
                RssPages => kernel.rss_pages() as i64,
                FolioPages => folio_pages(&kernel),
                HugePages => kernel.huge_pages() as i64,
                LazyPages => kernel.lazy_free_pages() as i64,
                Mappings => kernel.vma_count() as i64,
                PageTablesKib => kernel.page_table_bytes() as i64 / 1024,
            }
        });
        assert_eq!(seen, *expected, "{name}: `{script}`, {figure:?} under 5.15 to 7.2");
    }
}

/// Error numbers as in include/uapi/asm-generic/errno-base.h.
fn number(errno: Errno) -> i64 {
    match errno {
        Errno::BadFile => 9,
        Errno::Again => 11,
        Errno::NoMemory => 12,
        Errno::Fault => 14,
        Errno::Busy => 16,
        Errno::Invalid => 22,
    }
}

fn folio_pages(kernel: &Kernel) -> i64 {
    let runs = kernel.page_states((1 << 20)..(1 << 20) + ARENA_PAGES);
    runs.iter().filter(|run| run.state == PageState::Mthp).map(|run| run.pages as i64).sum()
}

/// A huge page without access is resident, but 6.1 leaves it out of smaps.
#[test]
fn only_6_1_leaves_huge_pages_out_of_smaps() {
    let script: Script = "adv HUGEPAGE 0 512\nw 0 1 1\nprot 0 512 n\n".parse().expect("a script");
    let seen = KernelVersion::ALL.map(|version| {
        let mut kernel = Kernel::with_arena(config(version), 1 << 20);
        script.steps.iter().for_each(|step| {
            kernel.execute(&step.op, 1 << 20);
        });
        (kernel.huge_pages(), kernel.huge_pages_in_smaps())
    });
    assert_eq!(seen, [(1, 1), (1, 0), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1)]);
}

#[test]
fn the_version_decides_which_mappings_are_aligned() {
    let aligned = |pages: u64| KernelVersion::ALL.map(|version| Rules::of(version).map_is_pmd_aligned(pages));
    assert_eq!(aligned(512), [false, false, true, true, true, true, true]);
    assert_eq!(aligned(513), [false, false, true, false, false, false, false]);
    assert_eq!(aligned(511), [false; 7]);
}

/// R13f: from 6.12 on, a page dropped by MADV_DONTNEED stays reserved for its mapping. Before 6.1 the call is refused.
#[test]
fn dropped_hugetlb_pages_stay_reserved_from_6_12_on() {
    // A pool of one page: the second mapping gets it only if the first has no reservation left.
    let script: Script = "map 0 512 w H\nw 0 1 1\nadv DONTNEED 0 512\nmap 512 512 w H\n".parse().expect("a script");
    let results = KernelVersion::ALL.map(|version| {
        let mut kernel = Kernel::with_arena(KernelConfig { hugetlb_pool_pages: Some(1), ..config(version) }, 1 << 20);
        let rets: Vec<i64> = script.steps.iter().map(|step| kernel.execute(&step.op, 1 << 20).ret).collect();
        (rets[2], rets[3])
    });
    assert_eq!(results, [(-1, -1), (0, 0), (0, 0), (0, -1), (0, -1), (0, -1), (0, -1)]);
}
