//! Times of `hksim compare` and `hksim replay`, on libraries whose work is known.

use std::fs;

use serde_json::Value;

use crate::support::Bench;

/// A malloc that never reuses memory, which is present from the start, and does some work in each call: `BURN`, as often as `TURNS` says.
const WORKING_MALLOC: &str = r#"
#include <stddef.h>
#include <sys/mman.h>
static _Alignas(4096) char page[4096];
static void burn(void) { for (volatile int i = 0; i < TURNS; i++) BURN; }
static _Alignas(16) char heap[1 << 25]; static size_t at;
__attribute__((constructor)) static void ready(void) { for (size_t i = 0; i < sizeof heap; i += 4096) heap[i] = 1; }
static void *take(size_t n) {
    n = (n + 31) & ~(size_t)15; if (n > sizeof heap - at) return 0;
    char *p = heap + at; at += n; ((size_t *)p)[0] = n - 16; return p + 16;
}
void *malloc(size_t n) { burn(); return take(n); }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { burn(); return take(a * b); }
size_t malloc_usable_size(void *p) { return p ? ((size_t *)p)[-2] : 0; }
void *realloc(void *p, size_t n) {
    char *q = take(n); size_t old = malloc_usable_size(p);
    for (size_t i = 0; q && i < old && i < n; i++) q[i] = ((char *)p)[i];
    return q;
}
"#;

/// Compiles the malloc. False, with a note, without a C compiler.
fn library(bench: &Bench, name: &str, burn: &str, turns: u32) -> bool {
    compiled(bench, WORKING_MALLOC, name, burn, turns)
}

fn compiled(bench: &Bench, source: &str, name: &str, burn: &str, turns: u32) -> bool {
    fs::write(bench.path("library.c"), source).expect("a source");
    let (turns, burn) = (format!("-DTURNS={turns}"), format!("-DBURN={burn}"));
    bench.compile("library.c", name, &["-O2", "-fPIC", "-shared", "-fno-builtin", &turns, &burn]).is_some()
}

/// A figure with its interval: median, low, high.
fn estimate(figure: &Value) -> [f64; 3] {
    ["median", "low", "high"].map(|end| figure[end].as_f64().unwrap_or_else(|| panic!("{end} in {figure}")))
}

#[test]
fn twice_the_work_takes_twice_the_time() {
    let bench = Bench::with_trace();
    if !library(&bench, "one.so", "(void)page", 8000) || !library(&bench, "two.so", "(void)page", 16000) {
        return;
    }
    let comparison = bench.json("compare rm.hkt --runs 9 --seed 3 --touch none --allocators ./one.so,./two.so");
    let [one, two] = [0, 1].map(|row| &comparison["rows"][row]);
    let [ratio, low, high] = estimate(&two["ratio_to_first"]);
    assert!((1.8..2.2).contains(&ratio) && low <= ratio && ratio <= high, "{ratio} ({low} to {high})");
    assert_eq!(two["verdict"], "slower");
    assert_eq!((estimate(&one["ratio_to_first"]), &one["verdict"]), ([1.0; 3], &Value::Null));
    let [first, first_low, first_high] = estimate(&one["cpu_ns_per_call"]);
    let [_, second_low, second_high] = estimate(&two["cpu_ns_per_call"]);
    // However the rounds differ: of nine, one lies outside each end, so the ratio of at least five is between these.
    let [lowest, highest] = [second_low / first_high, second_high / first_low];
    assert!((lowest..=highest).contains(&ratio), "{ratio}, and of the times {lowest} to {highest}");
    let timing = &comparison["timing"];
    let [same, low, high] = estimate(&timing["same_again"]);
    assert!((0.8..1.25).contains(&same) && low <= high, "{timing}");
    let shared = timing["core_shared_share"].as_f64();
    assert_eq!(shared.is_some(), cfg!(target_arch = "x86_64"), "{timing}");
    let [harness, ..] = estimate(&timing["harness"]["cpu_ns_per_call"]);
    assert!(harness < first / 4.0, "the replay takes {harness} ns of {first}");
    assert_eq!((&timing["ended"], &timing["seed"], &timing["precision"]), (&"rounds".into(), &3.into(), &Value::Null));
    assert_eq!((&one["rounds"], &comparison["runs"], &comparison["counted_runs"]), (&9.into(), &9.into(), &5.into()));
}

#[test]
fn work_in_the_kernel_is_told_from_work_of_the_program() {
    let bench = Bench::with_trace();
    let syscalls = "madvise(page, 4096, MADV_DONTNEED), page[0] = 1";
    if !library(&bench, "user.so", "(void)page", 8000) || !library(&bench, "kernel.so", syscalls, 8) {
        return;
    }
    let comparison = bench.json("compare rm.hkt --runs 2 --touch none --allocators ./user.so,./kernel.so");
    let shares = [0, 1].map(|row| {
        let row = &comparison["rows"][row];
        if row["system_ns_per_call"].is_null() {
            return Err(row["skipped"].to_string());
        }
        let [user, system] = ["user_ns_per_call", "system_ns_per_call"].map(|part| estimate(&row[part]));
        for [median, low, high] in [user, system] {
            assert!(low <= median && median <= high, "{row}");
        }
        let cpu_ns = row["cpu_ns_per_call"]["median"].as_f64().expect("a time");
        assert!((user[0] + system[0] - cpu_ns).abs() < 0.01 * cpu_ns, "the parts are the whole: {row}");
        Ok(system[0] / cpu_ns)
    });
    match shares {
        [Ok(user), Ok(kernel)] => assert!(user < 0.25 && kernel > 0.6, "{user} and {kernel} in the kernel"),
        [Err(why), _] | [_, Err(why)] => println!("skipped: {why}"),
    }
}

#[test]
fn what_ends_the_rounds_is_in_the_result() {
    let bench = Bench::with_trace();
    let ended = |flags: &str| {
        let comparison = bench.json(&format!("compare rm.hkt --allocators glibc {flags}"));
        (comparison["timing"]["ended"].as_str().expect("a word").to_string(), comparison["runs"].as_u64())
    };
    assert_eq!(ended("--precision 90%"), ("precise".to_string(), Some(11)));
    assert_eq!(ended("--budget 1ns"), ("time".to_string(), Some(1)));
    assert_eq!(ended("--runs 2"), ("rounds".to_string(), Some(2)));
    let table = bench.ok("compare rm.hkt --allocators glibc --runs 1 --seed 77");
    for text in ["1 round in random order (--seed 77), as many as --runs", "glibc again", "(no allocator)"] {
        assert!(table.contains(text), "`{text}` in {table}");
    }
}

#[test]
fn duets_run_on_two_processors() {
    let bench = Bench::with_trace();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return println!("skipped: one processor");
    }
    let comparison = bench.json("compare rm.hkt --allocators glibc,native --runs 7 --duet");
    assert_eq!(comparison["timing"]["is_duet"], true);
    let [ratio, ..] = estimate(&comparison["rows"][1]["ratio_to_first"]);
    assert!(ratio > 0.05 && ratio < 20.0, "{comparison}");
}

#[test]
fn a_replay_is_timed_once_or_in_rounds() {
    let bench = Bench::with_trace();
    let once = bench.json("replay rm.hkt --on glibc");
    assert_eq!((&once["rounds"], &once["ended"], &once["ratio_to_first"]), (&1.into(), &Value::Null, &Value::Null));
    let time = &once["cpu_ns_per_call"];
    assert!(time["median"].as_f64() > Some(0.0) && time["low"].is_null(), "{time}");
    let rounds = bench.json("replay rm.hkt --on glibc --runs 7");
    assert_eq!((&rounds["rounds"], &rounds["ended"]), (&7.into(), &"rounds".into()));
    let [low, high] = ["low", "high"].map(|end| rounds["ratio_to_first"][end].as_f64().expect("an interval"));
    assert!(low <= high && low > 0.1 && high < 10.0, "of glibc to itself: {}", rounds["ratio_to_first"]);
}

/// A malloc that works ten times as much in a free as in an allocation.
#[test]
fn allocations_and_frees_are_timed_apart() {
    let bench = Bench::with_trace();
    let frees = WORKING_MALLOC.replace("{ (void)p; }", "{ if (p) for (int i = 0; i < 10; i++) burn(); }");
    if !compiled(&bench, &frees, "frees.so", "(void)page", 800) {
        return;
    }
    let comparison = bench.json("compare rm.hkt --runs 5 --touch none --apart --allocators ./frees.so,native:hakmem");
    let [row, inside] = [0, 1].map(|row| &comparison["rows"][row]);
    let why = |row: &Value| {
        let skipped = row["skipped"].as_array().into_iter().flatten();
        skipped.filter(|skipped| skipped["figure"] == "apart").map(|skipped| skipped["reason"].to_string()).next()
    };
    assert!(why(inside).is_some_and(|why| why.contains("malloc")), "the replay contains this one: {inside}");
    if let Some(why) = why(row) {
        return println!("skipped: {why}");
    }
    let [[allocation, ..], [free, low, high]] =
        ["ns_per_allocation", "ns_per_free"].map(|part| estimate(&row["apart"][part]));
    assert!((5.0..16.0).contains(&(free / allocation)), "{free} and {allocation}: {row}");
    assert!(low < free && free < high, "{row}");
    let [touch, ..] = estimate(&row["apart"]["touch_ns_per_call"]);
    assert!(touch < allocation / 10.0, "nothing is touched: {row}");
}
