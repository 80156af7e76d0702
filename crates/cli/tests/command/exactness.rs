//! Regressions: short traces whose prediction once differed from the replay in accesses of the allocator.

use std::fs;

use crate::support::Bench;

/// The cause of the former difference, the calls (script or CSV) and the policy flags.
const CASES: [(&str, &str, &str); 13] = [
    (
        "handing out a block clears its key: a write",
        "a 0 8000;a 1 8000;f 0;f 1;a 2 8000;a 3 8000",
        "--huge never --touch none --fork-at 5",
    ),
    (
        "handing out a block clears its key on a zero page that a split left absent",
        "a 0 2208;a 1 174523;f 1;a 2 2547",
        "--huge thp --purge free --purge-spans yes --purge-delay 0 --touch none",
    ),
    (
        "a free writes its link before it reads its key, in optimised code, too",
        "a 0 4000;a 1 4000;a 2 4000;a 3 4000;a 4 4000;a 5 4000;f 0;f 1;f 2;f 3;f 4;f 5",
        "--huge never --touch none",
    ),
    (
        "metadata beyond the first page, after a split",
        "a 0 16;a 1 100000;f 1;a 2 900000;a 3 900000",
        "--huge thp --purge free --purge-spans yes --purge-delay 0 --header full --slab 16K",
    ),
    (
        "header off reads what the program left",
        "a 0 1900000;f 0;a 1 5000;a 2 5000;a 3 5000",
        "--huge thp --header off --touch all-at-death --fork-at 2",
    ),
    (
        "header light mistakes data left by the program for a header",
        "a 0 1900000;f 0;a 1 5000;a 2 5000;a 3 5000",
        "--huge thp --header light --touch all-at-death --fork-at 2",
    ),
    (
        "a page copied by a write and then populated was copied once",
        "a 0 26163;f 0;a 1 26163;f 1",
        "--superslab 64K --huge never --prefault populate-write --purge free --purge-delay 0 --fork-at 1",
    ),
    (
        "single pages of a shared huge page that a populate splits are copied",
        "a 0 5;f 0;a 0 526368;a 1 23",
        "--superslab 16M --slab 256K --huge thp --prefault populate-write --prefault-scope slab --purge free --purge-delay 0 \
         --arena 1G --meta sidecar --carve bump --huge-cache 0 --touch first --fork-at 2 --fork-for 3",
    ),
    (
        "pages given up by MADV_FREE and written again are no longer lazily freed",
        "a 0 300000;a 1 300000;f 0;a 2 200000;f 1;a 3 100",
        "--superslab 256K --huge never --purge free --purge-delay 0",
    ),
    (
        "calloc of no bytes leaves a lazily freed page as it is: a store under an empty mask marked it as written",
        "time_ns,thread,op,object,size,call;0,0,alloc,0,1,calloc;40000000,0,free,0,,;40000010,0,thread-exit,,,;\
         40000020,0,alloc,0,0,calloc",
        "--superslab 32M --huge never --purge free --purge-delay 0 --cache 0 --warm-slabs 0 --front-cache 255 --touch none",
    ),
    (
        "a resize copies a huge block that was never written and whose memory held metadata",
        "time_ns,op,object,size,align_log2;0,alloc,0,31,11;1000,realloc,0,25398,;2000,free,0,,;3000,alloc,1,316195,;\
         40000000,alloc,2,19,7;40001000,realloc,1,632390,;40002000,free,1,,;40003000,realloc,2,291,;40004000,free,2,,",
        "--superslab 64K --slab 64K --header full --huge collapse --cache 0 --arena 1G --purge free --touch none",
    ),
    (
        "a collapse copies what a child shares, and a populating call after it copies nothing",
        "a 0 20000;a 1 20000;a 2 20000;a 3 20000",
        "--superslab 64K --slab 16K --huge collapse --prefault populate-read --arena 1G --fork-at 1",
    ),
    (
        "a populate that writes to a shared hugetlb page copies it",
        "a 0 16;a 1 717;a 2 2000;a 3 4000;a 4 30;a 5 8000;a 6 16000;a 7 30000;a 8 100",
        "--superslab 64K --slab 16K --huge hugetlb --prefault populate-write --prefault-scope slab --purge none \
         --arena 1G --meta sidecar --fork-at 3",
    ),
];

fn check_exact(bench: &Bench, what: &str, calls: &str, policy: &str) {
    let format = if calls.starts_with("time_ns,") { "csv" } else { "script" };
    fs::write(bench.path("calls.txt"), calls.replace(';', "\n")).expect("the calls");
    bench.ok(&format!("import calls.txt --from {format} -o calls.hkt"));
    let result = bench.json(&format!("validate calls.hkt {policy}"));
    let row = &result["rows"][0];
    match row["verdict"].as_str() {
        Some("skipped") => eprintln!("skipped: {what}: {}", row["reason"]),
        verdict => assert_eq!((verdict, &row["class"]), (Some("ok"), &"exact".into()), "{what}: {}", row["reason"]),
    }
}

#[test]
fn cases_that_once_differed_are_exact() {
    let bench = Bench::new();
    for (what, calls, policy) in CASES {
        check_exact(&bench, what, calls, policy);
    }
}

#[test]
fn a_check_for_a_free_block_reads_it() {
    let bench = Bench::new();
    let blocks: Vec<String> = (1..700).map(|number| format!("a {number} 100000")).collect();
    let calls = format!("a 0 8000;{};r 0 300000", blocks.join(";"));
    check_exact(
        &bench,
        "a resize that cannot grow in place reads the key",
        &calls,
        "--arena 64M --huge never --touch none",
    );
}

/// A random trace, shrunk. Measured on Linux 6.18 with 512 KiB huge pages in mode always: 1 601 536 bytes.
#[test]
fn a_partly_moved_folio_is_split_as_a_whole() {
    let bench = Bench::new();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/moved-folio.hkt");
    let policy = "--superslab 64K --slab 16K --classes linear --header off --huge collapse --cache 1 --purge free \
                  --purge-delay 0ns --arena 64M --huge-cache 1M --touch none --mthp 512K=always --thp madvise";
    let result = bench.json(&format!("sim {trace} {policy}"));
    assert_eq!(result["rss_bytes_end"], 1_601_536);
}
