//! `hksim advise --on`, and measured results in reports, plots and bundles. The truth is in a library of these tests: it
//! spins for a known number of turns at each allocation, or never uses memory again.

use std::fs;

use serde_json::Value;

use crate::support::{Bench, json_of, number};

/// Blocks by powers of two, with a list of free ones for each. `SPIN` turns at each allocation; with `KEEP`, a freed block
/// is not used again. Loading and ending it takes `START_MS` and `FINISH_MS`.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <sys/mman.h>
#include <time.h>
/* Runs for so many milliseconds of processor time. */
static void burn(const char *name) {
    const char *word = getenv(name);
    struct timespec begin, now;
    if (!word) return;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000.0 + (now.tv_nsec - begin.tv_nsec) / 1e6 < atoi(word));
}
__attribute__((constructor)) static void start(void) { burn("START_MS"); }
__attribute__((destructor)) static void finish(void) { burn("FINISH_MS"); }
struct block { size_t class; struct block *next; };
static struct block *lists[64];
static char *next, *end;
static int lock, turns = -1, keeps;
static void *take(size_t bytes) {
    if (turns < 0) {
        const char *word = getenv("SPIN");
        keeps = getenv("KEEP") != 0;
        turns = word ? atoi(word) : 0;
    }
    for (volatile int turn = 0; turn < turns; turn++) {}
    size_t class = 64 - __builtin_clzl((bytes + 16 + 31) - 1);
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
    struct block *found = lists[class];
    if (found) lists[class] = found->next;
    else {
        size_t size = (size_t)1 << class;
        if (!next || size > (size_t)(end - next)) {
            size_t all = size > (64 << 20) ? size : (64 << 20);
            next = mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            end = next + all;
        }
        found = (struct block *)next;
        next += size;
    }
    found->class = class;
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    return found + 1;
}
void *malloc(size_t n) { return take(n); }
size_t malloc_usable_size(void *p) { return p ? ((size_t)1 << ((struct block *)p - 1)->class) - 16 : 0; }
void free(void *p) {
    if (!p || keeps) return;
    struct block *block = (struct block *)p - 1;
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
    block->next = lists[block->class];
    lists[block->class] = block;
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}
void *calloc(size_t n, size_t m) { void *p = take(n * m); return memset(p, 0, n * m); }
void *realloc(void *p, size_t n) {
    if (p && n && n <= malloc_usable_size(p)) return p;
    void *q = take(n);
    if (p) { size_t old = malloc_usable_size(p); memcpy(q, p, old < n ? old : n); free(p); }
    return q;
}
void *memalign(size_t a, size_t n) {
    if (a <= 16) return take(n);
    /* Aligned blocks are not used again. */
    static char *place, *limit;
    if (!place || n + a + 16 > (size_t)(limit - place)) {
        size_t all = n + a + (64 << 20);
        place = mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        limit = place + all;
    }
    uintptr_t at = ((uintptr_t)place + 16 + a - 1) & ~(uintptr_t)(a - 1);
    ((struct block *)at - 1)->class = 63 - __builtin_clzl(n | 32);
    place = (char *)at + n;
    return (void *)at;
}
void *aligned_alloc(size_t a, size_t n) { return memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { *p = memalign(a, n); return *p ? 0 : ENOMEM; }
"#;

/// A program of 20 000 allocations.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    unsigned long sum = 0;
    for (int turn = 0; turn < 20000; turn++) {
        char *block = malloc(100 + turn % 900);
        memset(block, turn, 100);
        sum += block[turn % 100];
        free(block);
    }
    printf("%lu\n", sum);
}
"#;

/// A program that allocates 40 MiB eight times, and frees it each time.
const LARGE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    unsigned long sum = 0;
    for (int turn = 0; turn < 8; turn++) {
        char *block = malloc(40 << 20);
        memset(block, turn, 40 << 20);
        sum += block[turn];
        free(block);
        malloc(40);
    }
    printf("%lu\n", sum);
}
"#;

fn prepared() -> Option<Bench> {
    let bench = Bench::with_trace();
    fs::write(bench.path("pool.c"), LIBRARY).expect("a source");
    fs::write(bench.path("program.c"), PROGRAM).expect("a source");
    bench.compile("pool.c", "pool.so", &["-O1", "-fPIC", "-shared", "-fno-builtin"])?;
    bench.compile("program.c", "program", &["-O1", "-fno-builtin"])?;
    fs::copy(bench.path("pool.so"), bench.path("copy.so")).expect("a copy");
    Some(bench)
}

/// A choice among allocators on the trace rm.hkt.
fn advice(bench: &Bench, line: &str) -> Value {
    bench.json(&format!("advise rm.hkt --seed 1 {line}"))
}

fn chosen(advice: &Value) -> &Value {
    &advice["rows"][number(advice, "choice") as usize]
}

#[test]
fn a_library_that_spins_is_left_for_one_that_does_not() {
    let Some(bench) = prepared() else { return };
    let found = advice(&bench, "--present ./pool.so:SPIN=3000 --on ./pool.so:SPIN=30,3000 --runs 7");
    assert_eq!((&found["verdict"], &chosen(&found)["allocator"]), (&"change".into(), &"./pool.so:SPIN=30".into()));
    let ratio = chosen(&found)["ratio_to_present"]["high"].as_f64().expect("a ratio");
    assert!(ratio < 0.5, "100 times the turns: {ratio}");
    let apply = found["apply"].as_array().expect("variables");
    assert!(apply.iter().any(|word| word == "SPIN=30"), "{apply:?}");
    let preload = apply.iter().find_map(|word| word.as_str()?.strip_prefix("LD_PRELOAD=")).expect("a library");
    assert_eq!(fs::canonicalize(preload).ok(), fs::canonicalize(bench.path("pool.so")).ok());
    // The other way round there is nothing to gain.
    let found = advice(&bench, "--present ./pool.so:SPIN=30 --on ./pool.so:SPIN=3000 --runs 7");
    assert_eq!((&found["verdict"], number(&found, "choice")), (&"nothing-to-change".into(), 0));
}

#[test]
fn equal_libraries_are_a_tie_and_what_is_missing_has_a_reason() {
    let Some(bench) = prepared() else { return };
    let found = advice(&bench, "--present ./pool.so --on ./copy.so,./none.so,nomalloc,snmalloc --tie 50% --runs 7");
    assert_eq!((&found["verdict"], number(&found, "choice")), (&"nothing-to-change".into(), 0), "{:?}", found["text"]);
    assert!(found["text"][0].as_str().is_some_and(|text| text.starts_with("Nothing is worth changing")));
    assert_eq!(found["tied"], serde_json::json!([1]));
    for (row, reason) in [(2, "none.so"), (3, "unknown"), (4, "no libsnmallocshim.so")] {
        let row = &found["rows"][row];
        assert_eq!(row["outcome"], "skipped");
        assert!(row["reason"].as_str().is_some_and(|why| why.contains(reason)), "{row}");
    }
}

#[test]
fn memory_that_is_never_used_again_breaks_a_limit_of_the_present_allocator() {
    let Some(bench) = prepared() else { return };
    let keeps = "--on ./pool.so:KEEP=1 --runs 3";
    let found = advice(&bench, &format!("--present ./pool.so --goal rss {keeps}"));
    assert_eq!(number(&found, "choice"), 0);
    let bound = advice(&bench, &format!("--present ./pool.so --limit rss+10% {keeps}"));
    let [present, other] = [0, 1].map(|row| &bound["rows"][row]);
    assert_eq!((&present["is_within_limits"], &other["is_within_limits"]), (&true.into(), &false.into()));
    let peak = |row: &Value| number(&row["traces"][0], "rss_bytes_peak");
    assert!(peak(other) > peak(present) * 11 / 10, "{} and {}", peak(present), peak(other));
    let found = advice(&bench, "--present ./pool.so:KEEP=1 --goal rss-end --on ./pool.so --runs 3");
    assert_eq!((&found["verdict"], &chosen(&found)["allocator"]), (&"change".into(), &"./pool.so".into()));
    let ran = bench.run("advise rm.hkt --present ./pool.so --on ./copy.so --runs 3 --limit rss-99%");
    assert_eq!(ran.code, Some(1), "no row has 1 %: {}", ran.stderr);
}

/// Without a choice of modes every row has the one that is given.
#[test]
fn a_fixed_mode_binds_and_flags_of_designs_are_refused() {
    let Some(bench) = prepared() else { return };
    // The mode that the machine has: another one would change the modes under the tests that run meanwhile.
    let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let Some(mode) = modes.split(['[', ']']).nth(1) else { return eprintln!("skipped: the kernel has no huge pages") };
    let found = advice(&bench, &format!("--present ./pool.so --on ./pool.so,./copy.so --thp {mode} --runs 3"));
    let settings: Vec<&Value> =
        found["rows"].as_array().expect("rows").iter().map(|row| &row["setting"]).skip(1).collect();
    assert_eq!(settings, [&Value::from(format!("thp={mode}")); 2]);
    for (line, part) in [
        ("--on ./pool.so --huge never", "native:huge=VALUE"),
        ("--on ./pool.so --goal vmas", "time, rss and rss-end"),
        ("--on ./pool.so --limit installs+1%", "time, rss and rss-end"),
        ("--on ./pool.so --present ./none.so", "none.so"),
        ("--runs 7", "--on"),
        ("--on ./pool.so --trial", "CMD"),
    ] {
        let why = bench.refused(&format!("advise rm.hkt {line}"));
        assert!(why.contains(part), "{line}: {why}");
    }
}

/// The replays promise the turns that the program spins less, and the trial finds them.
#[test]
fn a_trial_keeps_what_the_replays_promise() {
    let Some(bench) = prepared() else { return };
    bench.ok("record -o program.hkt -- ./program");
    // Twenty thousand allocations of 20 000 turns: orders of magnitude more than all that the program does.
    let trial = "trial --allocators ./pool.so:SPIN=20000 --recording program.hkt --runs 7 --seed 1 --format json -o t.json -- ./program";
    bench.ok(trial);
    let trial = json_of(&bench.path("t.json"));
    let promise = &trial["promises"][0];
    let median = |field: &str| promise[field]["median"].as_f64().expect("an estimate");
    let (promised, measured) = (median("ratio_promised"), median("ratio_measured"));
    assert!(promised > 5.0 && measured > 5.0, "{promise}");
    assert!((0.5..2.0).contains(&(promised / measured)), "{promise}");
    assert!(promise["is_rss_kept"].is_boolean() && promise["is_ratio_kept"].is_boolean(), "{promise}");
}

/// The library takes 30 ms when it is loaded and 10 ms when the process ends, of which the calls know nothing.
#[test]
fn a_promise_has_the_start_and_the_end_of_the_process() {
    let Some(bench) = prepared() else { return };
    bench.ok("record -o program.hkt -- ./program");
    let allocator = "./pool.so:START_MS=30+FINISH_MS=10";
    bench.ok(&format!(
        "trial --allocators {allocator} --recording program.hkt --runs 7 --seed 1 --format json -o t.json -- ./program"
    ));
    let trial = json_of(&bench.path("t.json"));
    let median = |value: &Value| value["median"].as_f64().expect("an estimate");
    let promise = &trial["promises"][0];
    let [calls, start_end] = ["cpu_s_change", "start_end_s_change"].map(|field| median(&promise[field]));
    assert!((0.038..0.060).contains(&start_end), "30 and 10 ms: {promise}");
    let [present, other] = [0, 1].map(|row| median(&trial["rows"][row]["cpu_s"]));
    let expected = 1.0 + (calls + start_end) / present;
    assert!((median(&promise["ratio_promised"]) / expected - 1.0).abs() < 1e-6, "{expected}: {promise}");
    assert!((other - present - calls - start_end).abs() < 0.01, "{present} and {other} measured: {promise}");

    // A tenth of the turns saves a few milliseconds.
    let advice = |other: &str| {
        bench.json(&format!("advise program.hkt --seed 1 --present ./pool.so:SPIN=300 --on ./pool.so:{other} --runs 7"))
    };
    assert_eq!(advice("SPIN=30")["verdict"], "change");
    let found = advice("SPIN=30+START_MS=200");
    assert_eq!(found["verdict"], "nothing-to-change", "{:?}", found["text"]);
    let why = found["text"][1].as_str().expect("a sentence");
    assert!(why.contains("SPIN=30+START_MS=200") && why.contains("more to start and to end"), "{why}");
}

/// Intervals need seven rounds, which the trial of a choice has however short the budget is, unless fewer are asked for.
#[test]
fn a_trial_of_a_choice_has_the_rounds_of_an_interval() {
    let Some(bench) = prepared() else { return };
    bench.ok("record -o program.hkt -- ./program");
    let advice = |end: &str| {
        bench.ok(&format!(
            "advise program.hkt --seed 1 --present ./pool.so:SPIN=2000 --on ./pool.so:SPIN=30 {end} --format json -o a.json \
             --trial -- ./program"
        ));
        json_of(&bench.path("a.json"))["trial"].take()
    };
    let short = advice("--budget 1ms");
    assert_eq!((number(&short, "rounds"), &short["ended"]), (7, &"time".into()));
    assert!(short["promises"][0]["is_ratio_kept"].is_boolean(), "{}", short["promises"]);
    let few = advice("--runs 2");
    assert_eq!((number(&few, "rounds"), &few["promises"][0]["is_ratio_kept"]), (2, &Value::Null));
    let ran = bench.run("trial --allocators ./pool.so --budget 1ms -- ./program");
    assert!(ran.stdout.contains("they need 7; give --budget "), "{}", ran.stdout);
}

/// The C library maps and unmaps each block above 32 MiB (its threshold grows up to there), so that every turn faults on
/// all its pages; the library keeps it. A quarter of the time is left, far outside the error of any machine.
#[test]
fn an_advice_ends_with_a_trial_of_the_choice() {
    let Some(bench) = prepared() else { return };
    fs::write(bench.path("large.c"), LARGE).expect("a source");
    let Some(()) = bench.compile("large.c", "large", &["-O1", "-fno-builtin"]) else { return };
    bench.ok("record -o large.hkt -- ./large");
    bench.ok("advise large.hkt --seed 1 --on ./pool.so --runs 7 --format json -o a.json --trial -- ./large");
    let found = json_of(&bench.path("a.json"));
    assert_eq!((&found["verdict"], number(&found, "choice")), (&"change".into(), 1), "{:?}", found["text"]);
    let trial = &found["trial"];
    let names: Vec<&Value> = trial["rows"].as_array().expect("rows").iter().map(|row| &row["allocator"]).collect();
    assert_eq!(names, ["present", "./pool.so"]);
    let promise = &trial["promises"][0];
    let median = |field: &str| promise[field]["median"].as_f64().expect("an estimate");
    assert!(
        median("cpu_s_change") < 0.0 && median("ratio_promised") < 1.0 && median("ratio_measured") < 1.0,
        "{promise}"
    );
}

#[test]
fn measured_results_are_reported_drawn_and_bundled() {
    let Some(bench) = prepared() else { return };
    bench.ok("compare rm.hkt --allocators glibc,./pool.so --runs 7 --format json -o compare.json");
    bench.ok("trial --allocators ./pool.so --runs 7 --format json -o trial.json -- ./program");
    bench.ok("advise rm.hkt --present ./pool.so --on ./copy.so --tie 50% --runs 3 --format json -o advice.json");
    let comparison = json_of(&bench.path("compare.json"));
    let version = comparison["rows"][0]["version"].as_str().expect("a version");
    assert!(
        bench.shell(".", "ldd --version").stdout.lines().next().is_some_and(|line| line.contains(version)),
        "{version}"
    );
    bench.ok("report compare.json trial.json advice.json -o report.html");
    let page = fs::read_to_string(bench.path("report.html")).expect("a report");
    for part in [
        "fastest: ",
        "least peak RSS: ",
        "./pool.so",
        "live bytes",
        "Nothing is worth changing",
        "Allocators side by side",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for result in ["compare", "trial"] {
        bench.ok(&format!("plot {result}.json -o {result}.svg"));
        let picture = fs::read_to_string(bench.path(&format!("{result}.svg"))).expect("a picture");
        assert!(picture.contains("pool.so"), "{result}");
    }
    bench.ok("bundle compare.json trial.json advice.json -o study");
    let manifest = json_of(&bench.path("study/bundle.json"));
    let measured: Vec<u64> =
        manifest["results"].as_array().expect("results").iter().map(|result| number(result, "measurements")).collect();
    assert_eq!(measured, [2, 2, 2], "{manifest}");
    assert!(bench.path("study/inputs/rm.hkt").exists());
    let repeated = bench.json("repeat study");
    assert_eq!((number(&repeated, "skipped"), number(&repeated, "different")), (3, 0), "{repeated}");
}
