//! `check` of what people ship: real allocators, memory recordings, and limits relative to the stored result.

use std::fs;

use serde_json::Value;

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, json_of, number};

fn check(bench: &Bench, budget: &str, options: &str) -> (Option<i32>, String) {
    fs::write(bench.path("budget.toml"), budget).expect("a budget");
    let ran = bench.run(&format!("check budget.toml {options}"));
    (ran.code, ran.stdout + &ran.stderr)
}

/// glibc's malloc with some bytes more in every block.
const WASTING_MALLOC: &str = "#include <stddef.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n + MORE); }
void *calloc(size_t m, size_t n) { return __libc_calloc(m, n); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n + MORE); }
void *memalign(size_t a, size_t n) { return __libc_memalign(a, n + MORE); }
void *aligned_alloc(size_t a, size_t n) { return memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { *p = memalign(a, n); return *p ? 0 : 12; }
void free(void *p) { __libc_free(p); }
";

/// The result of a budget that may be broken.
fn result_of(bench: &Bench, line: &str) -> Value {
    let ran = bench.run(&format!("{line} --format json"));
    serde_json::from_str(&ran.stdout).unwrap_or_else(|why| panic!("{why}: {}", ran.stderr))
}

const HEAD: &str = "result = \"stored.json\"\ntraces = [\"rm.hkt\"]\n";

#[test]
fn an_allocator_is_held_to_what_a_replay_measures() {
    let bench = Bench::with_trace();
    let replay = bench.json("replay rm.hkt --on glibc:mmap_threshold=65536");
    let (faults, end) = (number(&replay, "faults"), number(&replay, "rss_bytes_end"));
    let budget = |faults: u64| {
        format!(
            "{HEAD}[design.shipped]\non = \"glibc:mmap_threshold=65536\"\nfaults = {faults}\nrss_bytes_end = {end}\n"
        )
    };
    let (code, text) = check(&bench, &budget(faults), "");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = check(&bench, &budget(faults - 1), "");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("broken: shipped on rm.hkt: "), "{text}");
    let row = &result_of(&bench, "check budget.toml")["rows"][0];
    assert_eq!((row["on"].as_str(), number(row, "figures.faults")), (Some("glibc:mmap_threshold=65536"), faults));
    let runs = number(row, "measured.runs");
    assert!((2..=5).contains(&runs), "until two are equal: {row}");
}

#[test]
fn the_time_of_a_library_breaks_only_a_limit_below_its_whole_interval() {
    let bench = Bench::with_trace();
    let budget = |limit: &str| format!("{HEAD}[design.shipped]\non = \"glibc\"\nns_per_call = {limit}\n");
    let (code, text) = check(&bench, &budget("0.01"), "");
    assert!(code == Some(1) && text.contains("BROKEN") && text.contains("95 % interval"), "{text}");
    let row = &result_of(&bench, "check budget.toml")["rows"][0];
    let interval = ["low", "high"].map(|end| row["limits"][0]["interval"][end].as_f64().expect("an end"));
    let median = row["limits"][0]["amount"].as_f64().expect("a time");
    assert!(0.0 < interval[0] && interval[0] <= median && median <= interval[1], "{row}");
    // Replays of the same trace in other processes, timed by another command.
    let timed = bench.json("replay rm.hkt --on glibc --runs 9")["cpu_ns_per_call"]["median"].as_f64().expect("a time");
    assert!((0.3..3.0).contains(&(median / timed)), "{median} and {timed}");
    let (code, text) = check(&bench, &budget("1e6"), "--update");
    assert!(code == Some(0) && text.contains("budget: ok"), "{text}");
    // From the stored result: a hundred times its time is not exceeded by a busy machine.
    let (code, text) = check(&bench, &budget("\"+10000%\""), "");
    assert!(code == Some(0) && !text.contains("BROKEN"), "{text}");
    // Without a limit, nothing is timed.
    check(&bench, &format!("{HEAD}[design.shipped]\non = \"glibc\"\nfaults = \"1M\"\n"), "");
    assert_eq!(result_of(&bench, "check budget.toml")["rows"][0]["figures"]["ns_per_call"], Value::Null);
}

#[test]
fn a_library_is_relative_to_the_budget_and_another_content_is_named() {
    let bench = Bench::with_trace();
    fs::create_dir(bench.path("ci")).expect("a folder");
    fs::rename(bench.path("rm.hkt"), bench.path("ci/rm.hkt")).expect("a trace");
    let build = |more: &str| {
        fs::write(bench.path("lib.c"), WASTING_MALLOC).expect("the source");
        let more = format!("-DMORE={more}");
        bench.compile("lib.c", "my.so", &["-shared", "-fPIC", &more]).expect("a C compiler");
        fs::rename(bench.path("my.so"), bench.path("ci/my.so")).expect("a library");
    };
    build("0");
    let budget = format!("{HEAD}[design.mine]\non = \"./my.so\"\nfaults = \"+0\"\nrss_peak = \"+1%\"\n");
    fs::write(bench.path("ci/budget.toml"), budget).expect("a budget");
    let ran = bench.run("check ci/budget.toml --update");
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    build("200");
    let result = result_of(&bench, "check ci/budget.toml");
    let kinds: Vec<&str> = result["rows"][0]["differences"]
        .as_array()
        .expect("differences")
        .iter()
        .filter_map(|one| one["kind"].as_str())
        .collect();
    assert_eq!(kinds[0], "library", "{result}");
    let ran = bench.run("check ci/budget.toml");
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("another library (checksum "), "{}", ran.stdout);
    let row = &result["rows"][0];
    if let Some(why) = row["library_growth_skipped"].as_str() {
        println!("skipped: {why}");
        return;
    }
    // By the sums of the stored result: the library before is gone.
    assert!(ran.stdout.contains("What grew most: installs in the library of requests of up to "), "{}", ran.stdout);
    let stored = &json_of(&bench.path("ci/stored.json"))["libraries"][0]["consumers"];
    let explained = bench.json("explain ci/rm.hkt --on ci/my.so --causes 0");
    for grown in row["growth"].as_array().expect("growth") {
        let function = grown["caller"].as_str().expect("a function");
        let before =
            stored.as_array().expect("consumers").iter().filter(|consumer| {
                consumer["caller"] == grown["caller"] && consumer["bytes_max"] == grown["bytes_max"]
            });
        let before: u64 = before.map(|consumer| number(consumer, "quantities.library_installs")).sum();
        assert_eq!((number(grown, "before"), grown["quantity"].as_str()), (before, Some("library_installs")));
        let of_function = explained["by"]["function"].as_array().expect("functions");
        let of_function = of_function.iter().find(|part| part["name"] == function).expect("a function of the replay");
        assert!(number(grown, "now") > before && number(grown, "now") <= number(of_function, "installs"), "{grown}");
    }
    // Both libraries are there: the stored sums are not needed.
    fs::copy(bench.path("ci/my.so"), bench.path("ci/other.so")).expect("a library");
    build("0");
    let budget = fs::read_to_string(bench.path("ci/budget.toml")).expect("a budget");
    fs::write(bench.path("ci/budget.toml"), budget.replace("my.so", "other.so")).expect("a budget");
    let mut without_sums = json_of(&bench.path("ci/stored.json"));
    without_sums["libraries"] = Value::Array(Vec::new());
    fs::write(bench.path("ci/stored.json"), without_sums.to_string()).expect("a stored result");
    assert_eq!(result_of(&bench, "check ci/budget.toml")["rows"][0]["growth"], row["growth"]);
    fs::remove_file(bench.path("ci/my.so")).expect("a library");
    let text = bench.run("check ci/budget.toml").stdout;
    assert!(text.contains("What grew in the library is not known: the stored result does not have"), "{text}");
}

#[test]
fn another_design_is_held_to_its_prediction() {
    let bench = Bench::with_trace();
    let predicted = bench.json("sim rm.hkt --design page-heap --release none");
    let installs = number(&predicted, "installs.total");
    let budget = |release: &str, installs: u64| {
        format!("{HEAD}[design.heap]\ndesign = \"page-heap+release={release}\"\ninstalls = {installs}\n")
    };
    let (code, text) = check(&bench, &budget("none", installs), "--update");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = check(&bench, &budget("free", installs - 1), "");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("Since the stored result: --release none -> free"), "{text}");
    let row = &result_of(&bench, "check budget.toml")["rows"][0];
    assert_eq!((number(row, "figures.installs"), row["policy"]["design"].as_str()), (installs, Some("page-heap")));
    for (design, part) in [
        ("page-heep", "design.heap: design = \"page-heep\""),
        ("page-heap+release=never", "--release `never`: expected one of none, dontneed, free"),
        ("page-heap+superslab=1M", "--superslab is no setting of the design page-heap"),
        ("bump,page-heap", "this command takes one design"),
    ] {
        let (code, text) = check(&bench, &format!("{HEAD}[design.heap]\ndesign = \"{design}\"\nvmas = 9\n"), "");
        assert!(code == Some(2) && text.contains(part), "{design}: {text}");
    }
    let (code, text) = check(&bench, &format!("{HEAD}[design.heap]\ndesign = \"bump\"\nns_per_call = 9\n"), "");
    assert!(code == Some(2) && text.contains("ns_per_call: not known of another design"), "{text}");
}

#[test]
fn a_recording_is_held_to_its_prediction_under_a_setting() {
    let bench = Bench::new();
    for name in ["page-operations.hkm", "page-operations.processes"] {
        let _ = std::os::unix::fs::symlink(data(name), bench.path(name));
    }
    let sim = bench.json("sim page-operations.hkm --thp always");
    let (traps, end) = (number(&sim, "traps"), number(&sim, "rss_bytes_end"));
    let budget = |traps: &str| {
        format!(
            "result = \"stored.json\"\ntraces = [\"page-operations.hkm\"]\n[design.huge]\nsetting = \"thp=always\"\n\
             traps = {traps}\nrss_bytes_end = {end}\n[design.small]\nsetting = \"thp=never\"\nrss_peak = \"+1%\"\n"
        )
    };
    let (code, text) = check(&bench, &budget(&traps.to_string()), "--update");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = check(&bench, &budget("\"+0\""), "");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = check(&bench, &budget(&(traps - 1).to_string()), "");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("broken: huge on page-operations.hkm: ") && !text.contains("broken: small"), "{text}");
    assert!(text.contains("Nothing changed since the stored result."), "{text}");
}

/// A program that maps memory in two sizes.
const MAPS: &str = "#include <string.h>
#include <sys/mman.h>
#define FAR __attribute__((noinline, noclone))
FAR static void *map_cache(int kib) {
    void *at = mmap(0, kib << 10, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memset(at, 1, kib << 10);
}
FAR static void start(void) { map_cache(MORE); map_cache(100); }
int main(void) { start(); return 0; }
";

#[test]
fn the_function_that_maps_more_is_named() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("app.c"), MAPS).expect("the source");
    let record = |kib: u32| {
        bench.compile("app.c", "app", &["-g", "-O1", &format!("-DMORE={kib}")]).expect("a C compiler");
        for name in ["app.hkm", "app.hkm.processes"] {
            let _ = fs::remove_file(bench.path(name));
            let _ = fs::remove_dir_all(bench.path(name));
        }
        bench.ok("record -q --memory --stacks -o app.hkm -- ./app");
    };
    let budget = "result = \"stored.json\"\ntraces = [\"app.hkm\"]\n[design.small]\nsetting = \"thp=never\"\n\
                  rss_bytes_end = \"+64K\"\ntraps = \"+3%\"\n";
    record(300);
    assert_eq!(check(&bench, budget, "--update").0, Some(0));
    record(658);
    let (code, text) = check(&bench, budget, "");
    assert_eq!(code, Some(1), "{text}");
    // 658 KiB are 165 pages, and 300 KiB are 75.
    let grew = "What grew most: bytes resident at the end of the memory of `map_cache`, called by `start`: \
                400.0 KiB -> 760.0 KiB.";
    assert!(text.contains(grew), "{text}");
}

#[test]
fn a_relative_limit_needs_a_stored_amount() {
    let bench = Bench::with_trace();
    let budget =
        format!("{HEAD}[design.a]\npolicy = \"default+huge=never\"\ninstalls = \"+1%\"\nrss_bytes_end = \"+64K\"\n");
    let (code, text) = check(&bench, &budget, "");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("installs cannot be compared: no stored amount; store this result with --update"), "{text}");
    let (code, text) = check(&bench, &budget, "--update");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = check(&bench, &budget, "");
    assert_eq!(code, Some(0), "{text}");

    // 1 % and no more: the stored amount is made smaller by hand.
    let path = bench.path("stored.json");
    let mut stored: Value = serde_json::from_slice(&fs::read(&path).expect("a result")).expect("JSON");
    let now = number(&stored["rows"][0], "figures.installs");
    for (before, expected) in [(now * 100 / 101 + 1, Some(0)), (now * 100 / 101 - 1, Some(1))] {
        stored["rows"][0]["figures"]["installs"] = before.into();
        fs::write(&path, stored.to_string()).expect("a result");
        let (code, text) = check(&bench, &budget, "");
        assert_eq!(code, expected, "{before} -> {now}: {text}");
        assert_eq!(text.contains("the stored result +1%"), expected == Some(1), "{text}");
    }
}

#[test]
fn a_stored_result_without_consumers_is_read_and_says_what_it_lacks() {
    let bench = Bench::with_trace();
    let budget = format!("{HEAD}[design.a]\npolicy = \"default+huge=never\"\ninstalls = \"+0\"\n");
    check(&bench, &budget, "--update");
    let path = bench.path("stored.json");
    let mut stored: Value = serde_json::from_slice(&fs::read(&path).expect("a result")).expect("JSON");
    stored["rows"][0]["figures"]["installs"] = 1.into();
    let removed = stored.as_object_mut().and_then(|fields| fields.remove("consumers"));
    assert!(removed.is_some(), "{stored}");
    fs::write(&path, stored.to_string()).expect("a result");
    let (code, text) = check(&bench, &budget, "");
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("The stored result does not state who uses the memory; store it again with --update."),
        "{text}"
    );
}

#[test]
fn what_cannot_be_checked_is_refused_before_the_work_starts() {
    let bench = Bench::with_trace();
    let _ = std::os::unix::fs::symlink(data("page-operations.hkm"), bench.path("ops.hkm"));
    let recording = "result = \"r.json\"\ntraces = [\"ops.hkm\"]\n";
    for (budget, part) in [
        (
            format!("{HEAD}[design.a]\non = \"glibc\"\nvmas = 1\n"),
            "design.a: vmas: not known of a replay on an allocator, which has ns_per_call, faults",
        ),
        (format!("{HEAD}[design.a]\non = \"gibc\"\nfaults = 1\n"), "design.a: --on gibc: unknown"),
        (format!("{HEAD}[design.a]\non = \"./none.so\"\nfaults = 1\n"), "none.so: cannot preload it"),
        (format!("{HEAD}[design.a]\nsetting = \"thp=always\"\ntraps = 1\n"), "rm.hkt: not a memory recording"),
        (format!("{HEAD}[design.a]\nsystem_time_s = 1\n"), "design.a: system_time_s: needs `profile`"),
        (
            format!("{recording}[design.a]\ntraps = 1\n"),
            "ops.hkm: a memory recording is of one allocator; set `setting`",
        ),
        (format!("{recording}[design.a]\nsetting = \"slab=1K\"\ntraps = 1\n"), "slab is not a flag of the kernel"),
        (
            format!("{recording}[design.a]\nsetting = \"\"\nlive_bytes_end = 1\n"),
            "live_bytes_end: not known of a memory recording",
        ),
    ] {
        fs::write(bench.path("budget.toml"), &budget).expect("a budget");
        let why = bench.refused("check budget.toml");
        assert!(why.contains(part), "{budget}: {why}");
    }
    assert!(bench.refused("check budget.toml --annotate gitlab").contains("services are github"));
}
