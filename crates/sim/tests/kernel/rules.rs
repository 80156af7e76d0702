//! One small script per kernel rule, with the figures the rule was established by, then the same scripts on the
//! running kernel.
//!
//! The figures were measured on Linux 6.18 (THP by madvise) before this model existed; they are literals here.

use super::executor::{Executor, Step, Verdict, compare, predict, text_of};
use hksim_sim::kernel::script::{Op, parse};
use hksim_sim::kernel::{BLOCK_ORDER, KernelConfig, Rules, SizeMode, ThpConfig, ThpMode};

type Figure = fn(&Step) -> i64;

const RET: Figure = |step| step.ret;
const ERRNO: Figure = |step| step.errno;
const FAULTS: Figure = |step| step.faults;
const TRAPS: Figure = |step| step.traps;
const RSS_KB: Figure = |step| step.rss_kb;
const HUGE_KB: Figure = |step| step.huge_kb;
const LAZY_KB: Figure = |step| step.lazy_kb;
const VMAS: Figure = |step| step.vmas;
const TABLE_KB: Figure = |step| step.page_table_kb;

const EINVAL: i64 = 22;
const ENOMEM: i64 = 12;
const EFAULT: i64 = 14;

/// Name, script with `;` between lines, figures after its last operation.
type Case = (&'static str, &'static str, &'static [(Figure, i64)]);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("R1 huge page at first touch", "adv HUGEPAGE 0 512; w 7 1 1",
        &[(FAULTS, 1), (TRAPS, 1), (RSS_KB, 2048), (HUGE_KB, 2048)]),
    ("R1c not where the mapping ends inside the block", "unmap 511 1; adv HUGEPAGE 0 511; w 0 1 1", &[(RSS_KB, 4)]),
    ("R1a not where a table is", "w 0 1 1; adv HUGEPAGE 0 512; w 1 511 1", &[(FAULTS, 511), (HUGE_KB, 0)]),
    ("R4 reads map the zero page", "r 0 256 1", &[(FAULTS, 256), (TRAPS, 256), (RSS_KB, 0)]),
    ("R4 a write after a read is a second fault", "r 0 256 1; w 0 256 1", &[(FAULTS, 256), (RSS_KB, 1024)]),
    ("R4 one read maps the huge zero page", "adv HUGEPAGE 0 512; r 0 512 1", &[(FAULTS, 1), (RSS_KB, 0)]),
    ("R4a the upgrade ignores advice", "adv HUGEPAGE 0 512; r 0 1 1; adv NOHUGEPAGE 0 512; w 0 1 1",
        &[(FAULTS, 1), (RSS_KB, 2048), (HUGE_KB, 2048)]),
    ("R4b populate for reading", "adv HUGEPAGE 0 512; adv POPULATE_READ 0 512",
        &[(FAULTS, 1), (TRAPS, 0), (RSS_KB, 0)]),
    ("R4b part of a huge zero page dropped", "adv HUGEPAGE 0 512; r 0 1 1; adv DONTNEED 0 16; w 0 512 1",
        &[(FAULTS, 512), (HUGE_KB, 0)]),
    ("R6 both halves advised before the touch",
        "unmap 0 512; map 0 256 w N; map 256 256 w N; adv HUGEPAGE 0 256; adv HUGEPAGE 256 256; w 0 512 1",
        &[(FAULTS, 1), (RSS_KB, 2048)]),
    ("R6 the first half touched before", 
        "unmap 0 1024; map 0 256 w N; adv HUGEPAGE 0 256; w 0 256 1; map 256 256 w N; adv HUGEPAGE 256 256; w 256 256 1",
        &[(FAULTS, 256), (HUGE_KB, 0)]),
    ("R7 a whole huge page dropped", "adv HUGEPAGE 0 512; w 0 1 1; adv DONTNEED 0 512; w 0 512 1",
        &[(FAULTS, 1), (HUGE_KB, 2048)]),
    ("R7 part of it", "adv HUGEPAGE 0 512; w 0 1 1; adv DONTNEED 0 16", &[(RSS_KB, 1984), (HUGE_KB, 0)]),
    ("R7 holes refault one by one", "adv HUGEPAGE 0 512; w 0 1 1; adv DONTNEED 0 16; w 0 512 1", &[(FAULTS, 16)]),
    ("R8' two halves free no table",
        "adv HUGEPAGE 0 512; w 0 1 1; adv DONTNEED 0 256; adv DONTNEED 256 256; w 0 512 1", &[(FAULTS, 512)]),
    ("R8' only whole blocks", 
        "w 256 1 1; w 512 1 1; w 1024 1 1; adv HUGEPAGE 0 1536; adv DONTNEED 256 1024; w 0 1536 64",
        &[(FAULTS, 17), (HUGE_KB, 2048)]),
    ("R8' not across mappings", "w 512 1 1; prot 600 1 r; adv DONTNEED 512 512", &[(TABLE_KB, 12)]),
    ("R9 a rewrite is free", "w 0 256 1; adv FREE 0 256; w 0 256 1", &[(FAULTS, 0), (RSS_KB, 1024), (LAZY_KB, 0)]),
    ("R9 lazily freed pages stay", "w 0 256 1; adv FREE 0 256", &[(RSS_KB, 1024), (LAZY_KB, 1024)]),
    ("R9a part of a folio mapped by pages", 
        "adv HUGEPAGE 0 512; w 0 64 1; prot 500 1 r; adv FREE 100 1", &[(RSS_KB, 256)]),
    ("R9b other pieces stay dirty", "adv HUGEPAGE 0 512; w 0 512 1; adv FREE 0 16", &[(RSS_KB, 2048), (LAZY_KB, 64)]),
    ("R9c populate cancels", "w 0 16 1; adv FREE 0 16; adv POPULATE_WRITE 0 16", &[(FAULTS, 0), (LAZY_KB, 0)]),
    ("R10 zeros give way", "adv HUGEPAGE 0 512; w 0 64 1; adv FREE 511 1", &[(RSS_KB, 256)]),
    ("R10 and fault again", "adv HUGEPAGE 0 512; w 0 64 1; adv FREE 511 1; w 0 512 1", &[(FAULTS, 448)]),
    ("R10 bytes decide", "adv HUGEPAGE 0 512; w 0 64 1; z 0 64 1; adv FREE 511 1", &[(RSS_KB, 0)]),
    ("R12' collapse of one page", "w 0 1 1; adv COLLAPSE 0 512",
        &[(RET, 0), (FAULTS, 0), (TRAPS, 0), (RSS_KB, 2048), (HUGE_KB, 2048)]),
    ("R12' of an empty table", "w 0 1 1; adv DONTNEED 0 1; adv COLLAPSE 0 512", &[(RET, 0), (RSS_KB, 2048)]),
    ("R12' no table stops it", "w 0 1 1; w 1024 1 1; adv COLLAPSE 0 1536", &[(ERRNO, EINVAL), (HUGE_KB, 2048)]),
    ("R12' a hole does not", "w 0 1 1; w 1024 1 1; unmap 512 512; adv COLLAPSE 0 1536",
        &[(ERRNO, ENOMEM), (HUGE_KB, 4096)]),
    ("R12' both ends in one block", "w 0 1 1; adv COLLAPSE 1 2", &[(ERRNO, EINVAL)]),
    ("R12' ends in two blocks, none whole", "w 0 1 1; adv COLLAPSE 256 512", &[(RET, 0), (HUGE_KB, 0)]),
    ("R12' short of the end", "w 0 1 1; adv COLLAPSE 0 511", &[(RET, 0), (HUGE_KB, 0)]),
    ("R12' never written", "r 0 16 1; adv COLLAPSE 0 512", &[(ERRNO, EINVAL), (RSS_KB, 0)]),
    ("R12' not wanted", "w 0 16 1; adv NOHUGEPAGE 0 4096; adv COLLAPSE 0 512", &[(ERRNO, EINVAL), (RSS_KB, 64)]),
    ("R12' what may only be read", "w 0 16 1; prot 0 4096 r; adv COLLAPSE 0 512", &[(RET, 0), (HUGE_KB, 2048)]),
    ("R12' lazily freed pages are kept", "w 0 16 1; adv FREE 0 16; adv COLLAPSE 0 512", &[(LAZY_KB, 0), (RSS_KB, 2048)]),
    ("R14 a hole", "unmap 100 1", &[(VMAS, 2)]),
    ("R14 alternating advice", "adv HUGEPAGE 0 64; adv HUGEPAGE 128 64", &[(VMAS, 4)]),
    ("R15 one page per block", "w 0 4096 512", &[(RSS_KB, 32), (TABLE_KB, 8 + 32)]),
    ("R15 a deposit per huge page", "adv HUGEPAGE 0 4096; w 0 4096 512", &[(TABLE_KB, 8 + 32)]),
    ("R15 single pages dropped keep it", "w 0 512 1; adv DONTNEED 0 256; adv DONTNEED 256 256", &[(TABLE_KB, 12)]),
    ("R16' congruent moves keep it", "adv HUGEPAGE 0 4096; w 512 1 1; remap 256 1024 2304 0", &[(HUGE_KB, 2048)]),
    ("R16' others do not", "adv HUGEPAGE 0 4096; w 512 1 1; remap 256 1024 2305 0", &[(HUGE_KB, 0), (RSS_KB, 2048)]),
    ("R18 moved after a touch", "w 0 1 1; remap 0 16 1024 0", &[(VMAS, 3)]),
    ("R18 moved before", "remap 0 16 1024 0", &[(VMAS, 1)]),
    ("R18 a charge that stays", "map 0 16 w -; w 0 16 1; prot 0 16 r; map 16 16 r -", &[(VMAS, 3)]),
    ("R18 a charge given back", "map 0 16 w -; prot 0 16 r; map 16 16 r -", &[(VMAS, 2)]),
    ("R19 advised after both touches", "adv HUGEPAGE 0 512; w 0 1 1; w 512 1 1; adv HUGEPAGE 512 3584", &[(VMAS, 2)]),
    ("R19 advised before the second", "adv HUGEPAGE 0 512; w 0 1 1; adv HUGEPAGE 512 3584; w 512 1 1", &[(VMAS, 1)]),
    ("R19 an anon_vma is borrowed from the next mapping first",
        "prot 16 16 r; w 0 1 1; w 40 1 1; prot 32 16 n; prot 0 16 n; prot 16 16 w; w 16 1 1; prot 0 16 r; prot 16 16 n",
        &[(VMAS, 3)]),
    ("R20 between two that cannot merge, the left", "prot 16 16 r; w 0 1 1; w 40 1 1; prot 16 16 w", &[(VMAS, 2)]),
    ("R20 and not the right", "prot 16 16 r; w 0 1 1; w 40 1 1; prot 16 16 w; prot 0 32 r", &[(VMAS, 2)]),
    ("R21 a moved table is widened", "unmap 0 16; unmap 1024 16; w 16 1 1; remap 16 600 1040 1", &[(TABLE_KB, 12)]),
    ("R21 munmap frees a table", "w 0 512 1; unmap 0 512", &[(TABLE_KB, 8), (RSS_KB, 0)]),
    ("R21 but not beside a neighbour", "w 0 512 1; unmap 0 511", &[(TABLE_KB, 12)]),
    ("R22 no mapping", "unmap 0 16; w 0 16 1", &[(RET, 16), (TRAPS, 16), (FAULTS, 0)]),
    ("R22 no permission, also in a system call", "map 0 16 r -; k 0 16 1", &[(RET, 16), (TRAPS, 16), (FAULTS, 0)]),
    ("R23 a border splits the entry", "adv HUGEPAGE 0 512; w 0 1 1; prot 100 1 r", &[(RSS_KB, 2048), (HUGE_KB, 0)]),
    ("R23 merging again does not mend it", 
        "adv HUGEPAGE 0 512; w 0 1 1; prot 100 1 r; prot 100 1 w; w 0 512 1", &[(FAULTS, 0), (HUGE_KB, 0)]),
    ("R23 advice on a whole huge page", "adv HUGEPAGE 0 512; w 0 1 1; adv NOHUGEPAGE 0 512", &[(HUGE_KB, 2048)]),
    ("R23 anonymous pages become writable", "map 0 8 w -; w 0 8 1; prot 0 8 r; prot 0 8 w; w 0 8 1", &[(FAULTS, 0)]),
    ("R23 zero pages do not", "map 0 8 r -; r 0 8 1; prot 0 8 w; w 0 8 1", &[(FAULTS, 8)]),
    ("R24 a hole stops a populate", "unmap 16 16; adv POPULATE_WRITE 0 48",
        &[(RET, -1), (ERRNO, ENOMEM), (FAULTS, 16), (RSS_KB, 64)]),
    ("R24 so does a protection", "prot 16 16 r; adv POPULATE_WRITE 0 48", &[(ERRNO, EINVAL), (FAULTS, 16)]),
    ("R24 a hole does not stop a drop", "w 0 48 1; unmap 16 16; adv DONTNEED 0 48", &[(ERRNO, ENOMEM), (RSS_KB, 0)]),
    ("R24 mprotect stops", "unmap 16 16; prot 0 48 r", &[(ERRNO, ENOMEM), (VMAS, 2)]),
    ("R24 several mappings move", "w 0 48 1; unmap 16 16; remap 0 48 1024 0", &[(RET, 0), (RSS_KB, 128)]),
    ("R24 nothing at the start", "unmap 0 16; remap 0 48 1024 0", &[(ERRNO, EFAULT)]),
    ("R24 overlap", "remap 0 48 16 0", &[(ERRNO, EINVAL)]),
    ("R24 no room to grow", "resize 0 16 32", &[(ERRNO, ENOMEM)]),
    ("R24 growing merges", "w 0 16 1; unmap 16 16; resize 0 16 32", &[(RET, 0), (VMAS, 1)]),
    ("R25 cold splits like free", "adv HUGEPAGE 0 512; w 0 64 1; adv COLD 0 1", &[(RSS_KB, 256)]),
    ("R26 mprotect spreads one dirty entry over its batch",
        "adv HUGEPAGE 0 512; w 0 512 1; adv FREE 0 512; prot 511 1 r; w 0 1 1; prot 0 16 r", &[(LAZY_KB, 1984)]),
    ("populate is charged, not trapped", "adv POPULATE_WRITE 0 256", &[(FAULTS, 256), (TRAPS, 0)]),
    ("populate in 2 MiB steps", "adv HUGEPAGE 0 2048; adv POPULATE_WRITE 0 2048", &[(FAULTS, 4), (TRAPS, 0)]),
    ("populate of what may only be read", "map 0 256 r p; prot 0 256 w; w 0 256 1", &[(FAULTS, 256)]),
    ("populate of what is forbidden", "map 0 256 n p", &[(FAULTS, 0)]),
];

/// The switches of `/sys/kernel/mm/transparent_hugepage`, which tests leave as they are on the running kernel.
#[test]
fn modes_decide_what_a_fault_installs() {
    let with = |global: ThpMode, order: usize, size: SizeMode, use_zero_page: bool| {
        let mut thp = ThpConfig::new(global);
        thp.sizes[order] = size;
        KernelConfig { thp, use_zero_page, ..KernelConfig::default() }
    };
    let plain = |global| with(global, BLOCK_ORDER, SizeMode::Inherit, true);
    let of_64k = |size| with(ThpMode::Madvise, 4, size, true);
    let cases: [(KernelConfig, Case); 10] = [
        (plain(ThpMode::Always), ("always", "w 0 1 1", &[(HUGE_KB, 2048)])),
        (plain(ThpMode::Always), ("always, not wanted", "adv NOHUGEPAGE 0 512; w 0 1 1", &[(RSS_KB, 4)])),
        (plain(ThpMode::Madvise), ("madvise, not advised", "w 0 1 1", &[(RSS_KB, 4)])),
        (plain(ThpMode::Never), ("never", "adv HUGEPAGE 0 512; w 0 1 1", &[(RSS_KB, 4)])),
        (
            with(ThpMode::Never, BLOCK_ORDER, SizeMode::Always, true),
            ("2 MiB always overrides never", "w 0 1 1", &[(HUGE_KB, 2048)]),
        ),
        (of_64k(SizeMode::Always), ("R3 64 KiB always", "w 17 1 1", &[(FAULTS, 1), (RSS_KB, 64)])),
        (of_64k(SizeMode::Always), ("R3 only where all is empty", "r 16 1 1; w 17 1 1", &[(RSS_KB, 4)])),
        (of_64k(SizeMode::Madvise), ("R3 64 KiB by madvise", "w 17 1 1", &[(RSS_KB, 4)])),
        (
            with(ThpMode::Madvise, BLOCK_ORDER, SizeMode::Inherit, false),
            ("R4c no huge zero page", "adv HUGEPAGE 0 512; r 0 1 1", &[(FAULTS, 1), (RSS_KB, 2048)]),
        ),
        (
            of_64k(SizeMode::Always),
            ("R26 a dirty batch", "w 0 16 16; adv FREE 0 16; w 0 1 1; prot 0 16 r", &[(LAZY_KB, 0)]),
        ),
    ];
    for (config, (name, script, figures)) in cases {
        let steps = predict(&config, &ops_of(script));
        for (at, (figure, expected)) in figures.iter().enumerate() {
            assert_eq!(steps.last().map(figure), Some(*expected), "{name}: figure {at} of `{script}`");
        }
    }
}

fn ops_of(script: &str) -> Vec<Op> {
    parse(&script.replace("; ", "\n")).expect("the scripts are well-formed")
}

#[test]
fn each_rule_gives_its_figures() {
    for (rule, script, figures) in CASES {
        let steps = predict(&KernelConfig::default(), &ops_of(script));
        let last = steps.last().expect("no script is empty");
        for (at, (figure, expected)) in figures.iter().enumerate() {
            assert_eq!(figure(last), *expected, "{rule}: figure {at} of `{script}`: {last:?}");
        }
    }
}

#[test]
fn each_rule_holds_on_the_running_kernel() {
    let Some(executor) = Executor::new() else { return };
    let scripts: Vec<Vec<Op>> = CASES.iter().map(|(_, script, _)| ops_of(script)).collect();
    let observed = executor.run(scripts.iter().map(Vec::as_slice));
    for (((rule, ..), ops), seen) in CASES.iter().zip(&scripts).zip(&observed) {
        match compare(&executor.config, ops, seen) {
            Verdict::Equal => {}
            Verdict::Disturbed => eprintln!("skipped: {rule}: disturbed by khugepaged or another process"),
            Verdict::Differs(report) => panic!("{rule}: {report}"),
        }
    }
}

/// R14: with room for this many more mappings, these operations.
const AT_THE_LIMIT: &[(u64, &str)] = &[
    (0, "adv HUGEPAGE 0 16; unmap 100 1; unmap 0 1; prot 10 1 r; adv DONTNEED 200 1; map 300 1 w N; map 300 1 r N"),
    (1, "adv HUGEPAGE 10 1; unmap 100 1; map 0 1 w -; remap 50 1 60 0; w 11 1 1"),
    (2, "adv HUGEPAGE 10 1; adv NOHUGEPAGE 20 1; unmap 4095 1; prot 0 5 r"),
    (3, "prot 10 1 n; prot 20 1 n; adv DONTNEED 30 1; resize 0 4096 4095"),
    (5, "remap 0 1 100 0; remap 1 1 4000 0"),
    (6, "remap 0 1 100 0; remap 1 1 4000 0; unmap 200 1; unmap 210 1"),
    (9, "remap 0 1 100 0; w 1 1 1; remap 1 1 4000 0; remap 200 1 300 1"),
];

#[test]
fn max_map_count_is_kept_as_the_kernel_keeps_it() {
    let Some(executor) = Executor::new() else { return };
    let limit: u64 = std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .expect("the limit is a number");
    for (room, script) in AT_THE_LIMIT {
        let ops = ops_of(script);
        let text = format!("fill {room}\n{}", text_of(&ops));
        let observed = executor.run_texts(std::iter::once(text));
        // The arena is one mapping itself.
        let config = KernelConfig { max_map_count: limit, vmas_elsewhere: limit - room - 1, ..executor.config.clone() };
        match compare(&config, &ops, &observed[0]) {
            Verdict::Equal => {}
            Verdict::Disturbed => eprintln!("skipped: room for {room}: disturbed by khugepaged or another process"),
            Verdict::Differs(report) => panic!("room for {room}: {report}"),
        }
    }
}

#[test]
fn whole_blocks_are_placed_on_block_borders() {
    let lengths = [1, 256, 511, 512, 513, 768, 1024, 1040, 2048, 3072, 16384, 262_144];
    let aligned = [512, 1024, 2048, 3072, 16384, 262_144];
    for pages in lengths {
        assert_eq!(Rules::LINUX_6_18.map_is_block_aligned(pages), aligned.contains(&pages), "{pages} pages");
    }
    let Some(executor) = Executor::new() else { return };
    for pages in lengths {
        // Any other length is aligned by luck, one time in 512.
        let seen = executor.aligned_of_20(pages) > 10;
        assert_eq!(seen, Rules::LINUX_6_18.map_is_block_aligned(pages), "{pages} pages on this kernel");
    }
}

/// R13. The pool is the administrator's; the test needs four free pages in it.
#[test]
fn hugetlb_follows_the_pool() {
    let scripts = [
        "map 0 2048 w H; w 0 1536 512; adv DONTNEED 0 4; adv DONTNEED 0 516; w 0 1 1; unmap 0 512; unmap 100 100",
        "map 0 2048 w H; map 2048 512 w H; r 0 1 1; w 0 1 1; prot 0 2048 r; prot 0 2048 w; w 0 2048 512; w 0 1 1",
        "map 0 2048 w HN; w 0 1 1; map 2048 1536 w H; adv POPULATE_WRITE 512 512; w 512 1 1; unmap 2048 1; w 0 1024 1",
        "map 0 1024 w H; adv FREE 0 512; adv COLD 0 512; adv HUGEPAGE 0 1; adv HUGEPAGE 0 512; map 1 1 w -; prot 0 1 r",
        "map 0 1024 w H; w 0 1 1; resize 0 1024 600; resize 0 1024 512; resize 0 512 1024; resize 1 100 50; resize 512 1 0",
        "map 0 1024 w Hp; map 0 512 w -; map 2048 1000 w Hp; adv DONTNEED 1 600; adv POPULATE_READ 2048 512",
    ];
    let pool = |name: &str| -> u64 {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    let unreserved = pool("free_hugepages").saturating_sub(pool("resv_hugepages"));
    if unreserved != 4 {
        eprintln!("skipped: {unreserved} unreserved pages in the hugetlb pool; the scripts need 4 (vm.nr_hugepages)");
        return;
    }
    let Some(executor) = Executor::new() else { return };
    let config = KernelConfig { hugetlb_pool: Some(4), ..executor.config.clone() };
    for script in scripts {
        let ops = ops_of(script);
        let observed = executor.run(std::iter::once(ops.as_slice()));
        if let Verdict::Differs(report) = compare(&config, &ops, &observed[0]) {
            panic!("{report}");
        }
    }
}
