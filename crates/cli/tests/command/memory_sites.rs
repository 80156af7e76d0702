//! Call sites of memory recordings: a program whose functions map and touch known numbers of pages is the oracle.

use serde_json::Value;

use crate::support::recordings::{can_record, with_recording};
use crate::support::{Bench, number};

const SOURCE: &str = r#"#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#define FAR __attribute__((noinline, noclone, noipa))
static FAR char *wrapped(long pages) {
    return mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static FAR void touch(char *first, long pages) {
    for (long page = 0; page < pages; page++) first[page * 4096] = 1;
}
static FAR void large_arena(void) {
    char *got = wrapped(2048);
    touch(got, 2048);
}
static FAR void small_buffers(void) {
    for (int i = 0; i < 50; i++) {
        char *got = wrapped(16);
        touch(got, 10);
        if (i % 2) munmap(got, 16 * 4096);
    }
}
static FAR void one_block(void) {
    char *got = malloc(4 << 20);
    touch(got, 1000);
    got[0] = 0;
}
int main(void) {
    large_arena();
    small_buffers();
    one_block();
    return 0;
}
"#;

/// A directory with a recording of the program; `None`, with the reason printed, where it cannot be made.
fn recorded() -> Option<Bench> {
    let bench = Bench::new();
    if !can_record() {
        return None;
    }
    std::fs::write(bench.path("app.c"), SOURCE).expect("the source");
    bench.compile("app.c", "app", &["-O2", "-g"])?;
    bench.ok("record --memory --stacks --no-aslr -o app.hkm -- ./app");
    Some(bench)
}

/// The sum of a figure over the rows whose stack has a function.
fn sum(rows: &[Value], function: &str, path: &str) -> u64 {
    let has = |row: &&Value| {
        let frames = row["stack"].as_array().expect("frames");
        frames.iter().any(|frame| frame.as_str().expect("text").starts_with(function))
    };
    rows.iter().filter(has).map(|row| number(row, path)).sum()
}

#[test]
fn memory_belongs_to_the_function_that_asked_for_it() {
    let Some(bench) = recorded() else { return };
    let never = bench.json("sim app.hkm --thp never --by site");
    let rows = never["sites"].as_array().expect("call sites").clone();
    // The first call of malloc also makes the heap of brk, and touches one page of it.
    for (function, touches, rss_pages) in
        [("large_arena", 2048, 2048), ("small_buffers", 500, 250), ("one_block", 1001, 1001)]
    {
        assert_eq!(sum(&rows, function, "touches"), touches, "{function}");
        assert_eq!(sum(&rows, function, "traps"), touches, "{function}");
        assert_eq!(sum(&rows, function, "installs.by_kind.base_4k"), touches, "{function}");
        assert_eq!(sum(&rows, function, "rss_bytes_end"), rss_pages * 4096, "{function}");
    }
    let block = rows.iter().find(|row| row["caller"] == "one_block").expect("malloc is not the caller");
    assert_eq!(block["stack_end"], "outermost");
    let always = bench.json("sim app.hkm --thp always --by site");
    let rows = always["sites"].as_array().expect("call sites").clone();
    // 8 MiB have 3 or 4 whole aligned ranges of 2 MiB.
    let huge = sum(&rows, "large_arena", "installs.by_kind.thp");
    assert!(huge >= 3, "{always}");
    assert_eq!(sum(&rows, "large_arena", "huge_bytes_end"), huge << 21);
    assert_eq!(sum(&rows, "small_buffers", "installs.by_kind.thp"), 0);
    for result in [&never, &always] {
        let rows = result["sites"].as_array().expect("call sites");
        let total = |path: &str| rows.iter().map(|row| number(row, path)).sum::<u64>();
        assert_eq!(total("touches"), number(result, "recording.traps_recorded"));
        assert_eq!(total("traps"), number(result, "traps"));
        assert_eq!(total("installs.total"), number(result, "installs.total"));
        assert_eq!(total("rss_bytes_end"), number(result, "rss_bytes_end"));
        assert_eq!(total("huge_bytes_end"), number(result, "huge_pages_end") << 21);
    }
    // The wrapper jumps to mmap, so it has no frame.
    let text = bench.ok("sim app.hkm --thp always --by site");
    assert!(text.contains("whose memory") && text.contains("large_arena  ") && text.contains("one_block"), "{text}");
    // Sites of the same setting in a sweep are those of sim.
    let sweep = bench.json("sweep app.hkm --thp never,always --by site");
    assert_eq!((&sweep["rows"][0]["sites"], &sweep["rows"][1]["sites"]), (&never["sites"], &always["sites"]));
}

#[test]
fn sites_are_listed_by_the_memory_that_they_map() {
    let Some(bench) = recorded() else { return };
    let info = bench.json("info app.hkm --sites=3");
    let top = info["sites"].as_array().expect("call sites");
    assert_eq!(top.len(), 3);
    let (arena, block, buffers) = (&top[0], &top[1], &top[2]);
    assert_eq!((number(arena, "mapped_bytes"), number(arena, "calls")), (8 << 20, 1));
    assert_eq!((number(block, "mapped_bytes"), &block["caller"]), ((4 << 20) + 4096, &"one_block".into()));
    assert_eq!((number(buffers, "mapped_bytes"), number(buffers, "calls")), (50 * 16 * 4096, 50));
    let stack = buffers["stack"].as_array().expect("frames");
    let lines: Vec<&str> = stack.iter().map(|frame| frame.as_str().expect("text")).collect();
    assert!(lines.iter().any(|line| line.starts_with("small_buffers  ") && line.ends_with("app.c:17")), "{lines:?}");
    assert_eq!(
        number(&info, "stacks.outermost"),
        info["stacks"].as_object().expect("ends").values().map(|end| end.as_u64().expect("a number")).sum::<u64>()
    );
    let by_calls = bench.json("info app.hkm --sites=1 --by calls");
    assert_eq!(number(&by_calls["sites"][0], "calls"), 50);
    bench.ok("info app.hkm --sites --format csv -o sites.csv");
    let csv = std::fs::read_to_string(bench.path("sites.csv")).expect("the sites");
    assert!(csv.lines().next().is_some_and(|head| head.contains("mapped_bytes") && head.ends_with(",stack")), "{csv}");
    bench.ok("trace anonymise app.hkm -o public.hkm");
    let public = bench.ok("sim public.hkm --thp always --by site");
    assert!(public.contains("module-1+0x") && !public.contains("one_block"), "{public}");
}

#[test]
fn recordings_without_call_stacks_say_so() {
    let bench = with_recording();
    for (line, expected) in [
        ("sim ops.hkm --by site", "record with --memory --stacks"),
        ("info ops.hkm --sites", "record with --memory --stacks"),
        ("sweep ops.hkm --thp never,always --by site", "use --format json, or sim"),
        ("sim ops.hkm --by caller", "invalid value 'caller'"),
    ] {
        let text = bench.refused(line);
        assert!(text.contains(expected), "{line}: {text}");
    }
}
