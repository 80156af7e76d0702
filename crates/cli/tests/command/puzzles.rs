//! Things that allocator authors found puzzling, each as two designs beside each other: predicted, measured, equal, and
//! the figures that solve it.

use serde_json::Value;

use crate::support::{Bench, number};

/// The predicted installs of a design that was validated; `None` where this machine cannot tell.
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

/// Two designs on a trace, where the machine can run both.
fn both(bench: &Bench, trace: &str, one: &str, other: &str) -> Option<(Value, Value)> {
    validated(bench, trace, one).zip(validated(bench, trace, other))
}

fn server() -> Bench {
    let bench = Bench::new();
    bench.ok("gen server --live 8M --events 40k --threads 2 -o server.hkt");
    bench
}

const PAGES_PER_HUGE_PAGE: u64 = 512;

#[test]
fn populate_before_the_advice_loses_every_huge_page() {
    let bench = server();
    let (before, after) = ("--huge thp --prefault populate", "--huge thp --prefault populate-write");
    let Some((before, after)) = both(&bench, "server.hkt", before, after) else { return };
    // One huge page a SuperSlab where the advice came first; where it came last, all of its pages one by one.
    let superslabs = number(&after, "installs.by_reason.populated");
    assert!(superslabs >= 4, "{superslabs} SuperSlabs populated");
    assert_eq!(number(&before, "installs.by_reason.populated"), superslabs * PAGES_PER_HUGE_PAGE);
    assert_eq!(number(&after, "installs.by_kind.thp"), number(&before, "installs.by_kind.thp") + superslabs);
    assert_eq!(number(&before, "rss_bytes_peak"), number(&after, "rss_bytes_peak"));
}

#[test]
fn memset_is_prefaulting_at_the_same_price() {
    let bench = server();
    for huge in ["never", "thp"] {
        let flags = |prefault: &str| format!("--huge {huge} --prefault {prefault}");
        let Some((memset, populate)) = both(&bench, "server.hkt", &flags("memset"), &flags("populate-write")) else {
            return;
        };
        assert_eq!(memset["installs"]["by_kind"], populate["installs"]["by_kind"], "{huge}: the same pages");
        assert_eq!(memset["faults"], populate["faults"], "{huge}: the same faults");
        // Only the exceptions are saved by the system call: they move from the program to the allocator's loop.
        let populated = number(&populate, "installs.by_reason.populated");
        assert_eq!(number(&memset, "installs.by_reason.prefault"), populated, "{huge}");
        assert_eq!(number(&memset, "traps"), number(&populate, "traps") + populated, "{huge}");
    }
}

/// Sixteen blocks of 25 pages in two units each: they fill a SuperSlab of 2M, or two of 1M on one huge page. Then the last
/// eight are freed, and taken again.
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

/// Splits, and pages that came back one by one into what a split left open.
fn holes(report: &Value) -> (u64, u64) {
    (number(report, "splits"), number(report, "installs.by_reason.hole_after_split"))
}

#[test]
fn a_purge_around_the_header_leaves_holes_that_come_back_as_small_pages() {
    let bench = half_freed();
    let flags = |spans: &str| format!("--huge thp --purge-delay 0 --cache 0 --purge-spans {spans}");
    let Some((spans, whole)) = both(&bench, "half.hkt", &flags("yes"), &flags("no")) else { return };
    // The empty slabs were purged, and the header with its huge page stayed: that splits the page, and for good.
    assert_eq!((holes(&spans), holes(&whole)), ((1, FREED_PAGES), (0, 0)));
    assert_eq!(number(&spans, "faults"), number(&whole, "faults") + FREED_PAGES);
}

#[test]
fn small_superslabs_that_share_a_huge_page_split_it() {
    let bench = half_freed();
    let flags = |superslab: &str| format!("--huge thp --superslab {superslab} --purge-delay 0 --cache 0");
    let Some((half, whole)) = both(&bench, "half.hkt", &flags("1M"), &flags("2M")) else { return };
    // The second SuperSlab became empty and was purged, its page of metadata with it.
    assert_eq!((holes(&half), holes(&whole)), ((1, FREED_PAGES + 1), (0, 0)));
}

#[test]
fn a_header_that_is_read_first_costs_two_faults_a_page() {
    let bench = Bench::new();
    let blocks: String = (0..512).map(|id| format!("a {id} 4000\n")).collect();
    std::fs::write(bench.path("blocks.script"), blocks).expect("a script trace");
    bench.ok("import blocks.script -o blocks.hkt");
    let flags = |header: &str| format!("--huge never --touch none --carve bump --header {header}");
    let Some((light, full)) = both(&bench, "blocks.hkt", &flags("light"), &flags("full")) else { return };
    let kinds = |report: &Value, kind: &str| number(report, &format!("installs.by_kind.{kind}"));
    // Fresh memory reads as no header, so each is written after all: a zero page, then a page in its place.
    assert_eq!((kinds(&full, "zero"), kinds(&full, "cow")), (0, 0));
    assert!(kinds(&light, "zero") > 400, "{}", light["installs"]["by_kind"]);
    assert_eq!(kinds(&light, "zero"), kinds(&light, "cow"));
    assert_eq!(kinds(&light, "base_4k") + kinds(&light, "zero"), kinds(&full, "base_4k"), "the same pages");
    assert_eq!(number(&light, "faults"), number(&full, "faults") + kinds(&light, "zero"));
    assert_eq!(light["rss_bytes_peak"], full["rss_bytes_peak"]);
}

#[test]
fn a_map_of_twice_the_size_that_is_populated_and_trimmed_is_paid_twice() {
    // What `--align trim` would do with MAP_POPULATE, as operations on pages: 4 MiB populated, half of them unmapped.
    use hksim_linux_mm::{Kernel, KernelConfig, MapFlags};
    let populate = MapFlags { populate: true, ..MapFlags::READ_WRITE };
    let mut over = Kernel::new(KernelConfig::default());
    over.map(0..1024, populate).result.expect("room");
    over.unmap(512..1024).expect("a mapping");
    let mut exact = Kernel::new(KernelConfig::default());
    exact.map(0..512, populate).result.expect("room");
    assert_eq!((over.counters().faults, exact.counters().faults), (1024, 512));
    assert_eq!((over.rss_pages(), exact.rss_pages()), (512, 512), "what is left shows nothing of it");
}
