//! Effects that puzzled authors of allocators. Each test compares two designs: prediction and measurement must be
//! equal, and the figures that explain the effect must differ.

use serde_json::Value;

use crate::support::{Bench, has_single_pages, number};

/// The predicted installs of a validated design; `None` if this machine cannot measure it.
fn validated(bench: &Bench, trace: &str, flags: &str) -> Option<Value> {
    let result = bench.json(&format!("validate {trace} --arena 1G {flags}"));
    let row = &result["rows"][0];
    if row["verdict"] == "skipped" {
        eprintln!("skipped: {flags}: {}", row["reason"]);
        return None;
    }
    assert_eq!(row["verdict"], "ok", "{flags}: {}", row["reason"]);
    Some(row["predicted"].clone())
}

/// Two designs on a trace, if the machine can run both.
fn both(bench: &Bench, trace: &str, one: &str, other: &str) -> Option<(Value, Value)> {
    validated(bench, trace, one).zip(validated(bench, trace, other))
}

/// As [`both`], if the machine also installs single pages, which the test counts.
fn both_with_single_pages(bench: &Bench, trace: &str, one: &str, other: &str) -> Option<(Value, Value)> {
    both(bench, trace, one, other).filter(|(one, _)| has_single_pages(one))
}

fn server() -> Bench {
    let bench = Bench::new();
    bench.ok("gen server --live 8M --events 40k --threads 2 -o server.hkt");
    bench
}

const PAGES_PER_HUGE_PAGE: u64 = 512;

#[test]
fn populating_before_the_advice_loses_all_huge_pages() {
    let bench = server();
    let (before, after) = ("--huge thp --prefault populate", "--huge thp --prefault populate-write");
    let Some((before, after)) = both_with_single_pages(&bench, "server.hkt", before, after) else { return };
    // If the advice comes first, each SuperSlab is one huge page; if it comes last, every page is installed separately.
    let superslabs = number(&after, "installs.by_reason.populated");
    assert!(superslabs >= 4, "{superslabs} SuperSlabs populated");
    assert_eq!(number(&before, "installs.by_reason.populated"), superslabs * PAGES_PER_HUGE_PAGE);
    assert_eq!(number(&after, "installs.by_kind.thp"), number(&before, "installs.by_kind.thp") + superslabs);
    assert_eq!(number(&before, "rss_bytes_peak"), number(&after, "rss_bytes_peak"));
}

#[test]
fn memset_prefaults_at_the_same_cost() {
    let bench = server();
    for huge in ["never", "thp"] {
        let flags = |prefault: &str| format!("--huge {huge} --prefault {prefault}");
        let Some((memset, populate)) = both(&bench, "server.hkt", &flags("memset"), &flags("populate-write")) else {
            return;
        };
        assert_eq!(memset["installs"]["by_kind"], populate["installs"]["by_kind"], "{huge}: the same pages");
        assert_eq!(memset["faults"], populate["faults"], "{huge}: the same faults");
        // Populating saves only the exceptions, which memset takes in the allocator.
        let populated = number(&populate, "installs.by_reason.populated");
        assert_eq!(number(&memset, "installs.by_reason.prefault"), populated, "{huge}");
        assert_eq!(number(&memset, "traps"), number(&populate, "traps") + populated, "{huge}");
    }
}

/// Sixteen blocks of 25 pages in two slices each: they fill a SuperSlab of 2M, or two of 1M on one huge page. Then the
/// last eight are freed and allocated again.
fn half_freed() -> Bench {
    let bench = Bench::new();
    let events = |letter: &str, ids: std::ops::Range<u32>| -> String {
        let size = if letter == "a" { " 102400" } else { "" };
        ids.map(|id| format!("{letter} {id}{size}\n")).collect()
    };
    let script = events("a", 0..16) + &events("f", 8..16) + &events("a", 16..24);
    std::fs::write(bench.path("half.script"), script).expect("a script trace");
    bench.ok("import half.script -o half.hkt");
    bench
}

/// Pages of the eight blocks.
const FREED_PAGES: u64 = 8 * 25;

/// Splits, and pages that refill the holes of split huge pages.
fn holes(report: &Value) -> (u64, u64) {
    (number(report, "pmd_splits"), number(report, "installs.by_reason.refault_after_split"))
}

#[test]
fn a_purge_around_the_header_leaves_holes_refilled_by_small_pages() {
    let bench = half_freed();
    let flags = |spans: &str| format!("--huge thp --purge-delay 0 --cache 0 --purge-spans {spans}");
    let Some((spans, whole)) = both_with_single_pages(&bench, "half.hkt", &flags("yes"), &flags("no")) else { return };
    // The empty slabs are purged but the header stays: this splits the huge page permanently.
    assert_eq!((holes(&spans), holes(&whole)), ((1, FREED_PAGES), (0, 0)));
    assert_eq!(number(&spans, "faults"), number(&whole, "faults") + FREED_PAGES);
}

#[test]
fn small_superslabs_split_a_shared_huge_page() {
    let bench = half_freed();
    let flags = |superslab: &str| format!("--huge thp --superslab {superslab} --purge-delay 0 --cache 0");
    let Some((half, whole)) = both_with_single_pages(&bench, "half.hkt", &flags("1M"), &flags("2M")) else { return };
    // The second SuperSlab becomes empty and is purged, including its page of metadata.
    assert_eq!((holes(&half), holes(&whole)), ((1, FREED_PAGES + 1), (0, 0)));
}

#[test]
fn reading_the_header_first_costs_two_faults_per_page() {
    let bench = Bench::new();
    let blocks: String = (0..512).map(|id| format!("a {id} 4000\n")).collect();
    std::fs::write(bench.path("blocks.script"), blocks).expect("a script trace");
    bench.ok("import blocks.script -o blocks.hkt");
    let flags = |header: &str| format!("--huge never --touch none --carve bump --header {header}");
    let Some((light, full)) = both_with_single_pages(&bench, "blocks.hkt", &flags("light"), &flags("full")) else {
        return;
    };
    let kinds = |report: &Value, kind: &str| number(report, &format!("installs.by_kind.{kind}"));
    // Fresh memory contains no header, so the header is written: first a zero page, then a private page.
    assert_eq!((kinds(&full, "zero"), kinds(&full, "cow")), (0, 0));
    assert!(kinds(&light, "zero") > 400, "{}", light["installs"]["by_kind"]);
    assert_eq!(kinds(&light, "zero"), kinds(&light, "cow"));
    assert_eq!(kinds(&light, "base_4k") + kinds(&light, "zero"), kinds(&full, "base_4k"), "the same pages");
    assert_eq!(number(&light, "faults"), number(&full, "faults") + kinds(&light, "zero"));
    assert_eq!(light["rss_bytes_peak"], full["rss_bytes_peak"]);
}

#[test]
fn a_populated_mapping_of_twice_the_size_costs_twice() {
    // `--align trim` with MAP_POPULATE as page operations: 4 MiB populated, half of them unmapped.
    use hksim_linux_mm::{Kernel, KernelConfig, MapFlags};
    let populate = MapFlags { populate: true, ..MapFlags::READ_WRITE };
    let mut over = Kernel::new(KernelConfig::default());
    over.map(0..1024, populate).result.expect("room");
    over.unmap(512..1024).expect("a mapping");
    let mut exact = Kernel::new(KernelConfig::default());
    exact.map(0..512, populate).result.expect("room");
    assert_eq!((over.counters().faults, exact.counters().faults), (1024, 512));
    assert_eq!((over.rss_pages(), exact.rss_pages()), (512, 512), "the resident memory does not show the difference");
}
