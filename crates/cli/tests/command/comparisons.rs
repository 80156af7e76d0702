//! `hksim compare`: counts equal those of single replays; missing allocators are skipped, crashes reported.

use std::fs;

use serde_json::Value;

use crate::support::{Bench, number};

fn rows(comparison: &Value) -> &[Value] {
    comparison["rows"].as_array().expect("rows")
}

/// Compiles a malloc library in the bench's directory. Prints a note and returns `None` without a C compiler.
fn library(bench: &Bench, name: &str, source: &str) -> Option<()> {
    fs::write(bench.path("library.c"), source).expect("a source");
    bench.compile("library.c", name, &["-O2", "-fPIC", "-shared", "-fno-builtin"])
}

/// A replay on the library of a row, whose policy is passed by the environment, as `hksim run` does.
fn replay_on_library(bench: &Bench, row: &Value, policy: &str) -> Value {
    let library = row["library"].as_str().expect("hksim's own allocator is preloaded");
    let mut command = bench.command(&format!("replay rm.hkt --on {library} --format json"));
    let output = command.env("HKSIM_NATIVE_POLICY", policy).output().expect("hksim starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_row_equals_a_single_replay() {
    let bench = Bench::with_trace();
    // Without purges: whether a delay of milliseconds passes between two events depends on the load of the machine.
    let designs = ["huge=never purge=none", "superslab=1M purge=none", "preset=hakmem purge=none"];
    let names = "native:default+huge=never+purge=none,native:+superslab=1M+purge=none,native:hakmem+purge=none";
    let comparison = bench.json(&format!("compare rm.hkt --runs 2 --allocators {names}"));
    for (row, (design, code)) in rows(&comparison).iter().zip(designs.iter().zip(["constant", "run-time", "in-replay"]))
    {
        assert_eq!((&row["outcome"], &row["code"]), (&"measured".into(), &code.into()), "{design}");
        let flags = format!("--{}", design.replace(' ', " --").replace('=', " "));
        // A program cannot run on blocks that are aligned to 1 byte, so the third one is not preloaded.
        let run = || match code {
            "in-replay" => bench.json(&format!("replay rm.hkt {flags}")),
            _ => replay_on_library(&bench, row, design),
        };
        let replay = run();
        assert_eq!(row["policy"], bench.json(&format!("sim rm.hkt {flags}"))["policy"], "{flags}");
        for figure in ["faults", "traps", "rss_bytes_peak", "rss_bytes_end"] {
            if replay[figure].is_null() {
                println!("skipped: {figure}: {}", replay["skipped"]);
                continue;
            }
            // On a busy machine a run may have extra faults, but never fewer.
            let again = || number(&run(), figure);
            let least = (0..3).fold(number(&replay, figure), |least, _| {
                if least == number(row, &format!("{figure}.min")) { least } else { least.min(again()) }
            });
            assert_eq!(number(row, &format!("{figure}.min")), least, "{flags}: {figure}: {}", row[figure]);
        }
        let (marks, timeline) = (replay["marks"].as_array(), row["timeline"].as_array());
        let pick = |points: Option<&Vec<Value>>, event: &str| -> Vec<(u64, u64)> {
            let points = points.expect("points").iter();
            points.map(|point| (number(point, event), number(point, "rss_bytes"))).collect()
        };
        assert_eq!(pick(marks, "event"), pick(timeline, "event"), "{flags}");
        assert!(row["ops_per_s"]["median"].as_f64().is_some_and(|ops| ops > 0.0));
    }
    for (field, value) in [("runs", 2), ("warm_up_runs", 1), ("counted_runs", 2)] {
        assert_eq!(comparison[field], value, "{field}");
    }
}

/// A malloc that logs its calls, in one file per process.
const LOGGING_MALLOC: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), __libc_free(void *);
static void note(const char *call, size_t bytes) {
    static int file = -1;
    static __thread int busy;
    if (busy++ == 0) {
        char line[80];
        if (file < 0) {
            snprintf(line, sizeof line, "calls.%d", getpid());
            file = open(line, O_CREAT | O_WRONLY | O_TRUNC | O_APPEND, 0644);
        }
        int length = snprintf(line, sizeof line, "%s %zu\n", call, bytes);
        if (write(file, line, length) != length) _exit(9);
    }
    busy--;
}
void *malloc(size_t n) { note("malloc", n); return __libc_malloc(n); }
void *calloc(size_t m, size_t n) { note("calloc", m * n); return __libc_calloc(m, n); }
void *realloc(void *p, size_t n) { note("realloc", n); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { note("memalign", n); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { note("aligned_alloc", n); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { note("posix_memalign", n); *p = __libc_memalign(a, n); return *p ? 0 : 12; }
void free(void *p) { if (p) note("free", 0); __libc_free(p); }
"#;

/// The logged calls of each process that made any.
fn logged_calls(bench: &Bench) -> Vec<Vec<String>> {
    let files = fs::read_dir(bench.folder()).expect("the folder").flatten().map(|entry| entry.path());
    let calls: Vec<_> = files.filter(|path| path.to_string_lossy().contains("/calls.")).collect();
    let lines = |path: &std::path::PathBuf| -> Vec<String> {
        let text = fs::read_to_string(path).expect("calls");
        fs::remove_file(path).expect("the log can be removed");
        text.lines().map(str::to_string).collect()
    };
    calls.iter().map(lines).collect()
}

#[test]
fn another_malloc_gets_exactly_the_calls_of_the_trace() {
    let bench = Bench::new();
    let Some(()) = library(&bench, "writes.so", LOGGING_MALLOC) else { return };
    fs::write(bench.path("t.script"), "a 0 11111\na 1 200000\nf 0\nf 1\na 2 300000\n").expect("a trace");
    bench.ok("import t.script -o t.hkt");
    bench.ok("replay t.hkt --on ./writes.so");
    let expected = ["malloc 11111", "malloc 200000", "free 0", "free 0", "malloc 300000"];
    // The measured run, the timed run, and one that is sampled, if the kernel permits that. The control run makes no calls.
    let logged = logged_calls(&bench);
    assert!((2..=3).contains(&logged.len()) && logged.iter().all(|calls| *calls == expected), "{logged:?}");

    bench.ok("gen server --live 1M --events 8k --threads 3 -o server.hkt");
    bench.ok("replay server.hkt --on ./writes.so --mode threaded");
    for calls in logged_calls(&bench) {
        // The loader allocates its table for each thread, as in every threaded program.
        assert!(calls[..3].iter().all(|call| call.starts_with("calloc ")), "{:?}", &calls[..4]);
        assert!(calls[3].starts_with("malloc ") || calls.len() == 6, "{:?}", &calls[..6]);
    }
}

#[test]
fn json_has_the_parameters_of_a_comparison() {
    let bench = Bench::with_trace();
    let mut command = bench.command("compare rm.hkt --runs 1 --allocators glibc --format json");
    command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=3").env("MALLOC_CONF", "narenas:1");
    let output = command.output().expect("hksim starts");
    let comparison: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let environment = &comparison["environment"];
    assert_eq!(environment["variables"]["GLIBC_TUNABLES"], "glibc.malloc.tcache_count=3");
    assert_eq!(environment["variables"]["MALLOC_CONF"], "narenas:1");
    assert_eq!(environment["modes_changed"].as_array().map(Vec::len), Some(0));
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    assert_eq!(environment["kernel_release"], release.trim());
}

#[test]
fn live_bytes_match_the_trace() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 3k --ws 50 -o rm.hkt");
    bench.ok("export rm.hkt --to csv -o rm.csv");
    let comparison = bench.json("compare rm.hkt --runs 1 --allocators native,glibc --touch none");
    let samples: Vec<(u64, u64)> = rows(&comparison)[0]["timeline"]
        .as_array()
        .expect("a timeline")
        .iter()
        .map(|sample| (number(sample, "event"), number(sample, "live_bytes")))
        .collect();
    assert_eq!(samples, live_bytes_of_csv(&fs::read_to_string(bench.path("rm.csv")).expect("the export"), &samples));
    assert_eq!(rows(&comparison).len(), 2);
}

/// Live bytes after the events of `at`, computed from the exported rows only.
fn live_bytes_of_csv(csv: &str, at: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut lines = csv.lines().filter(|line| !line.starts_with('#'));
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let column =
        |name: &str| head.iter().position(|other| *other == name).unwrap_or_else(|| panic!("{name} in {head:?}"));
    let (event, op, object, size) = (column("event"), column("op"), column("object"), column("size"));
    let mut live = std::collections::BTreeMap::new();
    let mut found = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        // Rows that are not events have no number.
        let Ok(number) = cells[event].parse::<u64>() else { continue };
        match cells[op] {
            "free" => drop(live.remove(cells[object])),
            _ if cells[size].is_empty() => {}
            _ => drop(live.insert(cells[object], cells[size].parse::<u64>().expect("a size"))),
        }
        if at.iter().any(|&(event, _)| event == number + 1) {
            found.push((number + 1, live.values().sum()));
        }
    }
    found
}

#[test]
fn any_malloc_library_can_be_compared_and_a_crash_is_reported() {
    let bench = Bench::with_trace();
    // Serves the start of the process from a buffer, then fails: the replay counts failed requests.
    let bump = "#include <stddef.h>\nstatic _Alignas(16) char heap[1 << 26]; static size_t at;\n\
        static void *take(size_t n) { n = (n + 31) & ~(size_t)15; if (n > sizeof heap - at) return 0;\n\
        char *p = heap + at; at += n; ((size_t *)p)[0] = n - 16; return p + 16; }\n\
        void *malloc(size_t n) { return take(n); }\n\
        void free(void *p) { (void)p; }\n\
        void *calloc(size_t a, size_t b) { return take(a * b); }\n\
        size_t malloc_usable_size(void *p) { return p ? ((size_t *)p)[-2] : 0; }\n\
        void *realloc(void *p, size_t n) { char *q = take(n); size_t old = malloc_usable_size(p);\n\
        for (size_t i = 0; q && i < old && i < n; i++) q[i] = ((char *)p)[i]; return q; }\n";
    let crash = bump.replace("{ (void)p; }", "{ static long frees; if (p && ++frees > 5000) __builtin_trap(); }");
    let built = library(&bench, "libbump.so", bump).and_then(|()| library(&bench, "libcrash.so", &crash));
    if built.is_none() {
        return;
    }
    let comparison = bench.json("compare rm.hkt --runs 1 --allocators ./libbump.so,glibc");
    let [bump, glibc] = rows(&comparison) else { panic!("{comparison}") };
    // Memory is never reused: every requested byte stays resident.
    assert!(number(bump, "rss_bytes_peak.median") > 4 * number(glibc, "rss_bytes_peak.median"), "{bump}");
    assert!(bump["library"].as_str().is_some_and(|path| path.ends_with("/libbump.so")));
    let ran = bench.run("compare rm.hkt --runs 1 --allocators ./libcrash.so,glibc");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("failed: ./libcrash.so: signal ") && ran.stdout.contains(" killed the measured run"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("\nglibc "), "the others are compared: {}", ran.stdout);
    let ran = bench.run("compare rm.hkt --runs 1 --allocators ./libcrash.so,glibc --columns allocator");
    assert_eq!(ran.stdout, "allocator\n---------\nglibc\n", "the table alone");
    assert!(ran.stderr.contains("hksim: failed: ./libcrash.so: signal "), "a missing row is noticed: {}", ran.stderr);
}

#[test]
fn a_missing_allocator_is_skipped_with_its_package() {
    let bench = Bench::with_trace();
    let names = ["mimalloc", "jemalloc", "gperftools", "tcmalloc", "tbbmalloc"];
    let comparison = bench.json(&format!("compare rm.hkt --runs 1 --touch first --allocators {}", names.join(",")));
    for (row, name) in rows(&comparison).iter().zip(names) {
        assert_eq!(row["allocator"], name);
        let library = row["library"].as_str().unwrap_or_default();
        match row["outcome"].as_str() {
            Some("skipped") => {
                let reason = row["reason"].as_str().unwrap_or_default();
                assert!(reason.contains("install Debian's package lib"), "{name}: {reason}");
            }
            Some("measured") => {
                assert!(fs::exists(library).is_ok_and(|is_there| is_there), "{name}: {library}");
                assert!(number(row, "faults.median") > 0, "{name}");
            }
            other => panic!("{name}: {other:?}: {row}"),
        }
    }
}

#[test]
fn threads_tables_and_pictures() {
    let bench = Bench::new();
    bench.ok("gen server --live 4M --events 20k --threads 2 -o server.hkt");
    let line = "compare server.hkt --runs 1 --mode threaded --allocators glibc,native";
    let table = bench.ok(&format!("{line} --plot c.svg"));
    assert!(table.contains("threaded") && table.contains("ns/call"), "{table}");
    let drawn = fs::read_to_string(bench.path("c.svg")).expect("a picture");
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    for text in ["glibc", "native", "peak RSS", "faults", "live bytes", "processor ns per call"] {
        assert!(drawn.contains(text), "the picture has {text}");
    }
    let csv = bench.ok(&format!("{line} --format csv"));
    let head = csv.lines().next().unwrap_or_default();
    assert!(
        head.contains("allocator") && head.contains("faults_median") && head.contains("cpu_ns_per_call_median"),
        "{head}"
    );
    assert_eq!(csv.lines().count(), 3, "{csv}");
}

#[test]
fn bad_usage_is_refused_with_one_line() {
    let bench = Bench::with_trace();
    let cases = [
        ("--allocators nobody", "name glibc, mimalloc"),
        ("--allocators glibc:arena_max=8..2", "ends at or above its start"),
        ("--allocators ./nowhere.so", "nowhere.so"),
        ("--allocators native:nobody", "default, hakmem"),
        ("--allocators native:huge=tph", "--huge `tph`"),
        ("--allocators native:+thp=always", "is not a policy flag"),
        ("--allocators native:+superslab=3M", "superslab"),
        ("--allocators ./", "not a file"),
        ("--runs 0", "--runs"),
        ("--precision 0", "expected a percentage"),
        ("--budget 5", "a time"),
        ("--duet --mode threaded", "need all CPUs"),
        ("--mode sideways", "ordered and threaded"),
        ("--touch sideways", "rules are none, first"),
        ("--plot c.gif", ".svg or .png"),
    ];
    for (flags, needle) in cases {
        let message = bench.refused(&format!("compare rm.hkt {flags}"));
        assert!(message.contains(needle), "{flags}: expected `{needle}` in: {message}");
    }
    assert!(!bench.path("c.gif").exists());
}

/// glibc reads no units and ignores what it does not know, so both would be another row than the one asked for.
#[test]
fn settings_mean_what_they_say_or_are_refused() {
    let bench = Bench::new();
    let blocks: String = (0..10).map(|id| format!("a {id} 300000\n")).collect();
    fs::write(bench.path("blocks.script"), blocks).expect("a script");
    bench.ok("import blocks.script -o blocks.hkt");
    let words = ["128K", "131072", "1M"].map(|value| format!("glibc:mmap_threshold={value}")).join(",");
    let compared = bench.json(&format!("compare blocks.hkt --runs 1 --allocators {words}"));
    let faults: Vec<u64> = rows(&compared).iter().map(|row| number(row, "faults.median")).collect();
    assert_eq!(faults[0], faults[1], "a unit");
    assert_ne!(faults[0], faults[2], "blocks of 300 000 bytes are mapped or not");
    for (line, why) in [
        ("explain blocks.hkt --on glibc:mmap_threshold=128K..64M", "`mmap_threshold=128K..64M` has several values"),
        ("explain blocks.hkt --on glibc:arena_max=1,2", "`arena_max=1,2` has several values"),
        ("replay blocks.hkt --on glibc:arena_max=1,2", "`arena_max=1,2` has several values"),
        ("compare blocks.hkt --allocators glibc:arena_macks=1", "`arena_macks` is no setting of "),
        ("trial --allocators glibc:arena_macks=1 -- true", "`arena_macks` is no setting of "),
    ] {
        let ran = bench.run(line);
        assert_eq!((ran.code, ran.stderr.contains(why)), (Some(2), true), "{line}: {}", ran.stderr);
    }
}

/// Two equal rows are named by their places in the verdict; in JSON they keep the name that was given.
#[test]
fn rows_of_one_allocator_are_told_apart_in_the_verdict() {
    let bench = Bench::with_trace();
    let ran = bench.ok("compare rm.hkt --runs 7 --allocators glibc,glibc,glibc:arena_max=1");
    let verdict = ran.lines().find(|line| line.contains("least peak RSS: ")).unwrap_or_else(|| panic!("{ran}"));
    let memory = verdict.split("least peak RSS: ").nth(1).unwrap_or_default();
    assert!(memory.contains("glibc (row 1)") && memory.contains("glibc (row 2)"), "all three are equal: {verdict}");
    assert!(memory.contains("glibc:arena_max=1") && !memory.contains("arena_max=1 (row"), "{verdict}");
    let found = bench.json("compare rm.hkt --runs 1 --allocators glibc,glibc");
    assert!(rows(&found).len() == 2 && rows(&found).iter().all(|row| row["allocator"] == "glibc"), "{found}");
    let message = bench.refused("advise rm.hkt --on glibc,jemalloc,glibc");
    assert!(message.contains("glibc: named twice"), "{message}");
}
