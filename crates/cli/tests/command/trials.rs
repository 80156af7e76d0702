//! `hksim trial`: real programs under allocators and settings. The truth is in small libraries and programs of these
//! tests: a library that touches more than it is asked for, and programs that write what a shell says they write.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Bench, Ran, number};

/// A bump allocator that touches `WASTE` more bytes than a block of some size has. It counts nothing and frees nothing.
const LIBRARY: &str = r"
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <errno.h>
#include <sys/mman.h>
static char *next, *end;
static int lock;
static void *take(size_t bytes, size_t alignment) {
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
    size_t all = (bytes + 32 + (bytes >= 4096 ? WASTE : 0) + 15) & ~(size_t)15;
    uintptr_t at = ((uintptr_t)next + 16 + alignment - 1) & ~(alignment - 1);
    if (!next || at + all > (uintptr_t)end) {
        size_t size = all + alignment + (64 << 20);
        next = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        end = next + size;
        at = ((uintptr_t)next + 16 + alignment - 1) & ~(alignment - 1);
    }
    ((size_t *)at)[-1] = bytes;
    next = (char *)at + all;
    if (bytes >= 4096 && WASTE) memset((char *)at + bytes, 1, WASTE);
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    return (void *)at;
}
void *malloc(size_t n) { return take(n, 16); }
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t m) { return take(n * m, 16); }
void *realloc(void *p, size_t n) {
    void *q = take(n, 16);
    if (p) { size_t old = ((size_t *)p)[-1]; memcpy(q, p, old < n ? old : n); }
    return q;
}
void *memalign(size_t a, size_t n) { return take(n, a < 16 ? 16 : a); }
void *aligned_alloc(size_t a, size_t n) { return memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { *p = memalign(a, n); return *p ? 0 : ENOMEM; }
size_t malloc_usable_size(void *p) { return p ? ((size_t *)p)[-1] : 0; }
";

/// Keeps 2 000 blocks of 8 000 bytes, 15.3 MiB, and writes to each.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    unsigned long sum = 0;
    for (int i = 0; i < 2000; i++) {
        char *block = malloc(8000);
        memset(block, i, 8000);
        sum += block[7999];
    }
    printf("%lu\n", sum);
    return 0;
}
"#;

/// Compiles a file in the bench's directory; `None` without a C compiler.
fn compiled(bench: &Bench, name: &str, source: &str, flags: &[&str]) -> Option<()> {
    let file = format!("{name}.c");
    fs::write(bench.path(&file), source).expect("a source");
    bench.compile(file, name, &[&["-O1", "-fno-builtin"], flags].concat())
}

/// A directory with two libraries and a program; `None` without a C compiler.
fn prepared() -> Option<Bench> {
    let bench = Bench::new();
    compiled(&bench, "lean.so", LIBRARY, &["-fPIC", "-shared", "-DWASTE=0"])?;
    compiled(&bench, "wasteful.so", LIBRARY, &["-fPIC", "-shared", "-DWASTE=32000"])?;
    compiled(&bench, "blocks", PROGRAM, &[])?;
    Some(bench)
}

/// Runs a trial whose program has words with spaces.
fn trial(bench: &Bench, line: &str, program: &[&str]) -> (Ran, Value) {
    let mut command = bench.command(&format!("trial {line} --seed 7 --format json --"));
    let ran = Ran::of(line, command.args(program).output().expect("hksim starts"));
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|why| panic!("{line}: {why}: {}", ran.stderr));
    (ran, json)
}

fn row<'a>(trial: &'a Value, allocator: &str) -> &'a Value {
    let rows = trial["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["allocator"] == allocator).unwrap_or_else(|| panic!("no row {allocator}"))
}

#[test]
fn a_wasteful_library_has_a_higher_peak_and_the_same_output() {
    let Some(bench) = prepared() else { return };
    let (ran, trial) = trial(&bench, "--allocators ./lean.so,./wasteful.so --runs 7", &["./blocks"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    for name in ["present", "./lean.so", "./wasteful.so"] {
        let row = row(&trial, name);
        assert_eq!((&row["outcome"], &row["equal_output"]), (&"measured".into(), &true.into()), "{row}");
        for figure in ["cpu_s", "wall_s", "ratio_to_first"] {
            let [median, low, high] = ["median", "low", "high"].map(|part| row[figure][part].as_f64());
            assert!(low <= median && median <= high && low > Some(0.0), "{name}: {figure}: {}", row[figure]);
        }
    }
    let peak = |name: &str| number(row(&trial, name), "rss_bytes_peak.median");
    let faults = |name: &str| number(row(&trial, name), "faults.median");
    // 2 000 times 32 000 bytes. The largest folios are unknown, so faults have a lower bound only.
    let wasted = peak("./wasteful.so") - peak("./lean.so");
    assert!((60_000_000..70_000_000).contains(&wasted), "{wasted}");
    assert!(peak("./lean.so").abs_diff(peak("present")) < 2 << 20, "{} and glibc's", peak("./lean.so"));
    assert!(faults("./wasteful.so") > faults("./lean.so"));
    assert!(row(&trial, "./lean.so")["library"].as_str().is_some_and(|path| path.ends_with("lean.so")));
    assert!(row(&trial, "present")["library"].as_str().is_some_and(|path| path.contains("libc.so")));
}

#[test]
fn a_short_program_runs_several_times_in_a_round() {
    let (_, trial) = trial(&Bench::new(), "--allocators present --runs 2", &["true"]);
    assert!(trial["runs_per_round"].as_u64() > Some(1), "{trial}");
}

#[test]
fn time_and_memory_of_children_and_orphans_count() {
    let bench = Bench::new();
    let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
    let cpu = |program: &str| {
        let (ran, trial) = trial(&bench, "--allocators present --runs 1", &["sh", "-c", program]);
        assert_eq!(ran.code, Some(0), "{}", ran.stdout);
        row(&trial, "present")["cpu_s"]["median"].as_f64().expect("a time")
    };
    // The shell does not wait for the orphan. Without the time of children or orphans the figure would be near 0 in every
    // attempt; a neighbour of this machine can double one of them.
    let threes = [format!("({busy}) & ({busy}) & ({busy}) & wait"), format!("({busy}; {busy}; {busy}) & exit 0")];
    for three in threes {
        let ratios: Vec<f64> = (0..6).map(|_| cpu(&three) / cpu(busy)).collect();
        assert!(ratios.iter().any(|ratio| (2.0..4.5).contains(ratio)), "{three}: {ratios:?} times the time of one");
    }
}

#[test]
fn an_output_that_varies_blames_no_allocator_and_a_wrong_one_does() {
    let Some(bench) = prepared() else { return };
    let (ran, varying) = trial(&bench, "--allocators ./lean.so --runs 2", &["sh", "-c", "echo $$"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    assert_eq!(row(&varying, "./lean.so")["equal_output"], Value::Null);
    let says_which = "case $LD_PRELOAD in *lean*) echo lean;; *) echo other;; esac";
    let (ran, wrong) = trial(&bench, "--allocators ./lean.so --runs 2", &["sh", "-c", says_which]);
    let wrong = row(&wrong, "./lean.so");
    assert_eq!((ran.code, &wrong["outcome"], &wrong["equal_output"]), (Some(1), &"failed".into(), &false.into()));
    assert_eq!(wrong["reason"], "other output: 5 bytes instead of 6");
    assert!(wrong["cpu_s"]["median"].as_f64() > Some(0.0), "its figures are kept");
}

#[test]
fn a_row_that_crashes_has_a_reason_and_the_others_figures() {
    let Some(bench) = prepared() else { return };
    let crashes = "case $LD_PRELOAD in *wasteful*) echo broken >&2; kill -SEGV $$;; esac; exit 3";
    let (ran, trial) = trial(&bench, "--allocators ./wasteful.so,./lean.so --runs 2", &["sh", "-c", crashes]);
    assert_eq!(ran.code, Some(1));
    let reason = row(&trial, "./wasteful.so")["reason"].as_str().expect("a reason");
    assert!(reason.contains("signal: 11") && reason.contains("instead of exit status: 3 (broken)"), "{reason}");
    assert_eq!(row(&trial, "./wasteful.so")["cpu_s"], Value::Null);
    let lean = row(&trial, "./lean.so");
    assert_eq!((&lean["outcome"], &lean["status"]), (&"measured".into(), &"exit status: 3".into()));
}

#[test]
fn no_row_has_the_figures_of_another_allocator() {
    let Some(bench) = prepared() else { return };
    compiled(&bench, "static", PROGRAM, &["-static"]).expect("a compiler");
    let (ran, fixed) = trial(&bench, "--allocators ./lean.so,glibc --runs 1", &["./static"]);
    assert_eq!(ran.code, Some(0));
    for name in ["./lean.so", "glibc"] {
        let row = row(&fixed, name);
        assert_eq!((&row["outcome"], &row["cpu_s"]), (&"skipped".into(), &Value::Null));
        assert!(row["reason"].as_str().is_some_and(|why| why.contains("is statically linked")), "{row}");
    }
    compiled(&bench, "linked", PROGRAM, &["./lean.so"]).expect("a compiler");
    let (_, linked) = trial(&bench, "--allocators glibc,./wasteful.so --runs 1", &["./linked"]);
    for name in ["glibc", "./wasteful.so"] {
        assert_eq!(row(&linked, name)["outcome"], "measured", "{name} is loaded before the linked one");
    }
    let library = |name: &str| row(&linked, name)["library"].as_str().expect("a library").to_string();
    assert!(library("present").contains("lean.so") && library("glibc").contains("libc.so"), "{linked}");
    // Its environment is cleared, so the library is lost at its exec. The shell holds more than `env`, which has the library.
    let large = "text=$(head -c 8000000 /dev/zero | tr '\\0' x); sleep 1; echo ${#text}";
    let (ran, waiting) = trial(&bench, "--allocators ./lean.so --runs 1", &["env", "-i", "sh", "-c", large]);
    assert_eq!(ran.code, Some(1), "{waiting}");
    let reason = row(&waiting, "./lean.so")["reason"].as_str().expect("a reason");
    assert!(reason.contains("sh ran without") && reason.contains("lean.so"), "{reason}");
}

#[test]
fn programs_get_their_input_and_no_terminal() {
    let bench = Bench::new();
    fs::write(bench.path("words"), "b\na\n").expect("a file");
    let program = ["sh", "-c", "sort; pwd; test -t 0; echo $?; true < /dev/tty || echo none"];
    let (ran, given) = trial(&bench, "--allocators present --stdin words --runs 1", &program);
    assert_eq!((ran.code, &given["input"]), (Some(0), &"words".into()), "{}", ran.stderr);
    let (ran, _) = trial(&bench, "--allocators present --runs 1", &["sh", "-c", "test -z \"$(cat)\""]);
    assert_eq!(ran.code, Some(0), "an empty input");
    let refused = bench.refused("trial --stdin nowhere -- true");
    assert!(refused.contains("nowhere: cannot read"), "{refused}");
    assert!(bench.refused("trial -- ./nowhere").contains("./nowhere"));
    assert!(bench.refused("trial --thp sometimes -- true").contains("never"));
    assert!(bench.refused("trial --allocators ./nowhere.so -- true").contains("cannot preload it"));
}

/// Writes its process id, then waits for a signal. It ends with status 5.
const SERVER: &str = "trap 'exit 5' TERM; echo $$ > pid; while :; do sleep 0.02; done";

#[test]
fn a_server_is_timed_from_ready_to_the_end_of_its_load_and_stopped() {
    let bench = Bench::new();
    let mut command = bench.command("trial --allocators present --runs 2 --format json --ready");
    command.args(["test -e pid", "--load", "sleep 0.3; rm pid", "--", "sh", "-c", SERVER]);
    let ran = Ran::of("server", command.output().expect("hksim starts"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let trial: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let present = row(&trial, "present");
    assert_eq!((&trial["is_server"], &present["status"]), (&true.into(), &"exit status: 5".into()));
    let wall = present["wall_s"]["median"].as_f64().expect("a time");
    assert!((0.3..3.0).contains(&wall), "{wall}");
    assert!(present["tree_rss_bytes_loaded"].as_u64() > Some(0), "{present}");
}

#[test]
fn what_outlives_a_program_is_stopped_also_when_hksim_is_killed() {
    let bench = Bench::new();
    let (ran, trial) = trial(&bench, "--allocators present --runs 1", &["sh", "-c", "sleep 600 & echo $! >> pids"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(row(&trial, "present")["notes"][0].as_str().is_some_and(|note| note.contains("outlived")), "{trial}");
    let mut command = bench.command("trial --allocators present -- sh -c");
    let mut hksim = command.arg("echo $$ >> pids; touch up; exec sleep 600").spawn().expect("hksim starts");
    while !bench.path("up").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    hksim.kill().expect("still running");
    let _ = hksim.wait();
    let pids = fs::read_to_string(bench.path("pids")).expect("numbers");
    for pid in pids.split_whitespace() {
        let is_running = || fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("sleep"));
        let begin = std::time::Instant::now();
        while is_running() {
            assert!(begin.elapsed().as_secs() < 20, "{pid} still runs");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

const MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The program's own view: whether its processes may have huge pages.
#[test]
fn never_is_for_the_program_alone() {
    if !Path::new(MODE).exists() {
        println!("skipped: no transparent huge pages");
        return;
    }
    let bench = Bench::new();
    let before = fs::read_to_string(MODE).expect("the mode");
    let (_, trial) = trial(&bench, "--thp never --runs 1", &["grep", "THP_enabled", "/proc/self/status"]);
    let rows = trial["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[0]["setting"], &rows[1]["setting"]), (2, &Value::Null, &"thp=never".into()));
    // THP_enabled is 1 in the first row and 0 in the second (proc_pid_status(5)), so the outputs differ.
    assert_eq!(rows[1]["reason"], "other output: other content in 15 bytes");
    assert_eq!(fs::read_to_string(MODE).expect("the mode"), before);
}

/// Holds 64 MiB at the first mark and nothing at the second. At each it writes its own RSS, as the kernel counts it, to a
/// file for each allocator.
const MARKING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void mark(const char *name) {
    char command[4096];
    long size, pages;
    FILE *statm = fopen("/proc/self/statm", "r"), *own = fopen(getenv("LD_PRELOAD") ? "lean" : "present", "a");
    if (!statm || !own || fscanf(statm, "%ld %ld", &size, &pages) != 2) exit(2);
    fprintf(own, "%s %ld\n", name, pages * sysconf(_SC_PAGESIZE));
    fclose(statm);
    fclose(own);
    snprintf(command, sizeof command, "\"$HKSIM\" mark %d %s", (int)getpid(), name);
    if (system(command)) exit(3);
}
int main(void) {
    char *held = malloc(64 << 20);
    memset(held, 1, 64 << 20);
    mark("loaded");
    free(held);
    mark("freed");
    return 0;
}
"#;

/// The bytes that the marking program read itself at a mark, one of each run.
fn own_bytes(bench: &Bench, file: &str, mark: &str) -> Vec<u64> {
    let log = fs::read_to_string(bench.path(file)).expect("what the program wrote");
    let of_mark = log.lines().filter_map(|line| line.strip_prefix(mark)?.trim().parse().ok());
    of_mark.collect()
}

#[test]
fn rss_at_marks_is_what_the_program_reads_itself() {
    let Some(bench) = prepared() else { return };
    compiled(&bench, "marking", MARKING, &[]).expect("a compiler");
    let marked = |format: &str| {
        let line = format!("trial --allocators ./lean.so --runs 2 --format {format} -- ./marking");
        let mut command = bench.command(&line);
        let ran = Ran::of(&line, command.env("HKSIM", env!("CARGO_BIN_EXE_hksim")).output().expect("hksim starts"));
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        ran.stdout
    };
    let trial: Value = serde_json::from_str(&marked("json")).expect("JSON");
    for (name, file) in [("present", "present"), ("./lean.so", "lean")] {
        let at_marks = row(&trial, name)["rss_bytes_at_marks"].as_array().expect("marks");
        assert_eq!(at_marks.iter().map(|at| &at["mark"]).collect::<Vec<_>>(), ["loaded", "freed"], "{name}");
        for at in at_marks {
            let mark = at["mark"].as_str().expect("a name");
            // Pages of the C library, which other processes share, count as a part in the one and in full in the other.
            let own = own_bytes(&bench, file, mark);
            assert!(own.len() >= 3, "{name}: a sampled run and two rounds: {own:?}");
            for bytes in ["min", "median", "max"].map(|part| number(at, &format!("rss_bytes.{part}"))) {
                assert!(own.iter().all(|own| own.abs_diff(bytes) < 3 << 20), "{name}: {mark}: {bytes}, own {own:?}");
            }
        }
    }
    // glibc gives a block of 64 MiB back. The library of this test frees nothing.
    let freed = |name: &str| number(&row(&trial, name)["rss_bytes_at_marks"][1], "rss_bytes.median");
    assert!(freed("present") < 8 << 20 && freed("./lean.so") > 64 << 20, "{trial}");
    let table = marked("table");
    assert!(table.contains("RSS at loaded") && table.contains("RSS at freed"), "{table}");
}

#[test]
fn a_shell_marks_without_an_environment_and_others_are_refused() {
    let bench = Bench::new();
    let hksim = env!("CARGO_BIN_EXE_hksim");
    let program = format!("env -i {hksim} mark $$ up; {hksim} mark $$ 'a name'; true");
    let (ran, trial) = trial(&bench, "--allocators present --runs 1", &["sh", "-c", &program]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let at_marks = row(&trial, "present")["rss_bytes_at_marks"].as_array().expect("marks");
    assert_eq!(at_marks.iter().map(|at| &at["mark"]).collect::<Vec<_>>(), ["up", "a name"]);
    let own = std::process::id();
    assert!(bench.refused(&format!("mark {own} up")).contains("not being recorded"));
    // A program without marks has no table of them.
    let text = bench.ok("trial --allocators present --runs 1 -- true");
    assert!(!text.contains("RSS at"), "{text}");
}
