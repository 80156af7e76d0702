//! `hksim sweep --allocators`: call sites, libraries that fail, equal rows, and bundles of results that were replayed.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::recordings::can_record;
use crate::support::{Bench, Ran, json_of, number};

/// `large` has mappings of its own in glibc: 16 blocks, none of which is freed. `small` fills its heap.
const SOURCE: &str = r#"#include <stdlib.h>
#define FAR __attribute__((noinline, noclone))
static void *volatile kept[400];
static FAR void small(int at) {
    kept[at] = malloc(4000);
}
static FAR void large(int at) {
    kept[at] = malloc(400 << 10);
}
int main(void) {
    for (int i = 0; i < 300; i++) small(i);
    for (int i = 0; i < 16; i++) large(300 + i);
    return 0;
}
"#;
const LARGE_BLOCKS: u64 = 16;
/// 400 KiB, and the page with the header before them.
const PAGES_OF_LARGE: u64 = 101;

/// A directory with `app.hkt`, recorded with call stacks.
fn with_sites() -> Bench {
    let bench = Bench::new();
    fs::write(bench.path("app.c"), SOURCE).expect("the source");
    bench.compile("app.c", "app", &["-O2", "-g", "-fno-builtin"]).expect("a C compiler");
    bench.ok("record -q --stacks -o app.hkt -- ./app");
    bench
}

/// A library whose `malloc` aborts.
fn with_crash(bench: &Bench) -> Option<()> {
    let source = "#include <stdlib.h>\nvoid *malloc(size_t n) { (void)n; abort(); }\nvoid free(void *p) { (void)p; }\n";
    fs::write(bench.path("crash.c"), source).expect("a source");
    bench.compile("crash.c", "crash.so", &["-O2", "-fPIC", "-shared", "-fno-builtin"])
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// The installs of the sites whose innermost frame is this function.
fn of_function(sites: &[Value], function: &str) -> u64 {
    let name = |site: &Value| site["name"].as_str().unwrap_or_default().to_string();
    sites.iter().filter(|site| name(site).starts_with(function)).map(|site| number(site, "installs")).sum()
}

#[test]
fn installs_by_call_site_are_those_of_explain() {
    if !can_record() {
        return;
    }
    let bench = with_sites();
    let line = "sweep app.hkt --allocators glibc,glibc:mmap_threshold=1M,native:huge=never --thp never --by site";
    let swept = bench.json(line);
    assert_eq!(list(&swept, "rows").len(), 3);
    let [glibc, heap, native] = list(&swept, "by_site") else { panic!("three replays: {}", swept["by_site"]) };
    assert!(native["skipped"].as_str().is_some_and(|why| why.contains("explained by simulation")), "{native}");
    if let Some(why) = glibc["skipped"].as_str() {
        println!("skipped: {why}");
        return;
    }
    for replay in [glibc, heap] {
        let sites = list(replay, "site");
        assert_eq!((&replay["trace"], &replay["thp"]), (&"app.hkt".into(), &"never".into()));
        let sum: u64 = sites.iter().map(|site| number(site, "installs")).sum();
        assert_eq!(sum, number(replay, "installs_total"), "{replay}");
        let explained = bench.json(&format!(
            "explain app.hkt --on {} --thp never --causes 0",
            replay["allocator"].as_str().expect("a name")
        ));
        // Whether the start takes a page can vary between processes.
        let names = |sites: &[Value]| -> Vec<Value> {
            sites.iter().map(|site| site["name"].clone()).filter(|name| name != "start-up").collect()
        };
        assert_eq!(names(sites), names(list(&explained["by"], "site")), "the same keys");
        for function in ["large  ", "small  "] {
            assert_eq!(of_function(sites, function), of_function(list(&explained["by"], "site"), function));
        }
    }
    assert_eq!(of_function(list(glibc, "site"), "large  "), LARGE_BLOCKS * PAGES_OF_LARGE, "{glibc}");
    let in_heap = of_function(list(heap, "site"), "large  ");
    assert!(
        (1_590..LARGE_BLOCKS * PAGES_OF_LARGE).contains(&in_heap),
        "blocks beside each other share pages: {in_heap}"
    );

    let text = bench.ok(line);
    let cells = |name: &str| -> Vec<String> {
        let row =
            text.lines().find(|row| row.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        row.split("  ").filter(|cell| !cell.is_empty()).map(|cell| cell.trim().to_string()).collect()
    };
    assert!(cells("call site").contains(&"glibc:mmap_threshold=1M thp=never".to_string()), "{text}");
    assert!(cells("large").contains(&"1 616".to_string()), "{text}");
    for part in ["total", "those of `explain --on`", "skipped  native:huge=never thp=never by call site: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    bench.ok(&format!("{line} --format json -o sites.json"));
    bench.ok("report sites.json -o sites.html");
    let page = fs::read_to_string(bench.path("sites.html")).expect("a report");
    assert!(page.contains("installs by call site") && page.contains("1 616"), "the report has the table");
}

#[test]
fn call_sites_that_are_not_there_are_refused() {
    let bench = Bench::with_trace();
    for (line, expected) in [
        (
            "sweep rm.hkt --allocators glibc --by site",
            "rm.hkt: --by site: no call stacks were recorded; record with --stacks",
        ),
        ("sweep rm.hkt --allocators glibc --by site --format csv", "--format json"),
        ("sweep no.hkt --allocators glibc --by site", "no.hkt"),
    ] {
        let message = bench.refused(line);
        assert!(message.contains(expected), "{line}: {message}");
    }
}

/// The exit statuses are those of `compare`: 1 if a library crashes, 2 if it is none.
#[test]
fn a_failing_library_takes_only_its_own_rows_and_sets_the_status() {
    if !can_record() {
        return;
    }
    let bench = Bench::with_trace();
    let Some(()) = with_crash(&bench) else { return };
    fs::write(bench.path("none.c"), "int nothing;\n").expect("a source");
    bench.compile("none.c", "none.so", &["-fPIC", "-shared"]).expect("a C compiler");
    let rows_of = |name: &str| list(&json_of(&bench.path(name)), "rows").len();
    let sweep = |libraries: &str, name: &str| {
        bench.run(&format!("sweep rm.hkt --allocators {libraries} --format json -o {name}"))
    };
    let is_told = |ran: &Ran, words: &str| assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);

    let ran = sweep("glibc,./crash.so", "rows.json");
    is_told(&ran, "failed: ./crash.so on rm.hkt: signal 6 killed the observed run");
    is_told(&ran, "1 replay failed; their rows are missing");
    assert_eq!((ran.code, rows_of("rows.json")), (Some(1), 1), "{}", ran.stderr);
    let ran = sweep("./crash.so", "no.json");
    assert_eq!((ran.code, bench.path("no.json").exists()), (Some(1), false), "{}", ran.stderr);
    let ran = sweep("glibc,./crash.so,./none.so", "two.json");
    is_told(&ran, "defines no `malloc`");
    assert_eq!((ran.code, rows_of("two.json")), (Some(2), 1), "{}", ran.stderr);
    for (libraries, code) in [("glibc,./crash.so", 1), ("glibc,./none.so", 2)] {
        let ran = bench.run(&format!("compare rm.hkt --runs 1 --allocators {libraries}"));
        assert_eq!(ran.code, Some(code), "compare --allocators {libraries}: {}", ran.stderr);
    }
}

#[test]
fn equal_rows_are_told_apart() {
    if !can_record() {
        return;
    }
    let bench = Bench::with_trace();
    let text = bench.ok("sweep rm.hkt --allocators glibc,glibc");
    let verdict = text.lines().find(|line| line.starts_with("fewest traps: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(verdict.contains("glibc (row 1)") && verdict.contains("glibc (row 2)"), "{verdict}");
}

/// What was replayed is bundled with its inputs, and `repeat` runs no library again.
#[test]
fn results_of_replays_are_bundled_and_skipped() {
    if !can_record() {
        return;
    }
    let bench = Bench::with_trace();
    // A library that leaves a trace of each run.
    let source = "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
                  __attribute__((constructor)) static void ran(void) { int f = open(PLACE, O_CREAT | O_WRONLY, 0600); close(f); }\n\
                  extern void *__libc_malloc(size_t);\nvoid *malloc(size_t n) { return __libc_malloc(n); }\n";
    fs::write(bench.path("seen.c"), source).expect("a source");
    let place = format!("-DPLACE=\"{}\"", bench.path("it-ran").display());
    bench.compile("seen.c", "seen.so", &["-O2", "-fPIC", "-shared", "-fno-builtin", &place]).expect("a C compiler");
    bench.ok("sweep rm.hkt --allocators glibc,./seen.so --thp never --format json -o swept.json");
    let ran = bench.run("validate rm.hkt --on glibc --runs 2 --format json -o checked.json");
    assert!(ran.code.is_some_and(|code| code < 2), "{}", ran.stderr);
    fs::remove_file(bench.path("it-ran")).expect("the sweep ran it");
    bench.ok("bundle swept.json checked.json -o study");
    let read = |file: &str| fs::read_to_string(bench.path(file)).expect("a file");
    let measured = usize::from(json_of(&bench.path("checked.json"))["rows"][0].get("measured").is_some());
    assert!(read("study/README.md").contains(&format!("| `results/checked.json` | 0 | {measured} |")));
    let page = read("study/report.html");
    assert_eq!(page.matches("Measured: another machine").count(), 2, "both are measured");
    for name in ["rm.hkt", "swept.json", "checked.json"] {
        fs::remove_file(bench.path(name)).expect("the original can be removed");
    }
    let outcomes = bench.json("repeat study");
    let counts = ["equal", "different", "skipped"].map(|name| number(&outcomes, name));
    assert_eq!(counts, [0, 0, 2], "{outcomes}");
    assert!(outcomes.to_string().contains("made by replays on allocators"), "{outcomes}");
    assert!(!bench.path("it-ran").exists(), "the library is not run again");
    assert_eq!(fs::read_dir(bench.path("study/inputs")).expect("a folder").count(), 1, "the trace, once");
    is_refused_without_its_trace(&bench, &bench.path("study/results/swept.json"));
}

fn is_refused_without_its_trace(bench: &Bench, result: &Path) {
    fs::copy(result, bench.path("alone.json")).expect("a copy");
    let message = bench.refused("bundle alone.json -o other");
    assert!(message.contains("rm.hkt"), "{message}");
}
