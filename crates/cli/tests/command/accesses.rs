//! `record --accesses full` and `--backend ltrace` through the command line.

use std::process::Command;

use crate::support::{Bench, number};

fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed (apt install {program})");
    }
    found
}

#[test]
fn every_access_reaches_the_tlb_model_and_the_validation() {
    if !have("valgrind") {
        return;
    }
    let bench = Bench::new();
    bench.ok("record --accesses full -o ls.hkt -- ls /");
    let info = bench.json("info ls.hkt");
    assert!(number(&info, "touch_events") > 1000, "{info}");
    let sim = bench.json("sim ls.hkt --tlb zen4");
    let misses = &sim["tlb"]["lookups"]["application"];
    assert!(misses["l1_hits"].as_u64().is_some_and(|hits| hits > 100), "{sim}");
    let validated = bench.ok("validate ls.hkt --superslab 2M --huge never");
    assert!(validated.contains("verdict: ok") || validated.contains("skipped"), "{validated}");
}

#[test]
fn a_missing_tool_is_named() {
    let bench = Bench::new();
    for (line, package) in [("--accesses full", "valgrind"), ("--backend ltrace", "ltrace")] {
        let mut command = bench.command(&format!("record {line} -o a.hkt -- /bin/ls"));
        let output = command.env("PATH", bench.folder()).output().expect("hksim starts");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("apt install {package}")), "{message}");
        assert!(!bench.path("a.hkt").exists());
    }
}

/// Makes 7 allocator calls per round, one of them inside libc.
const PROGRAM: &str = "#include <malloc.h>\n#include <stdlib.h>\n#include <string.h>\n\
    int main(void) { void *q; for (int i = 0; i < 20; i++) { void *a = malloc(10), *b = calloc(3, 40), *c = memalign(64, 100); \
    void *d = aligned_alloc(64, 128), *e = realloc(malloc(30), 5000); char *s = strdup(\"hello\"); \
    if (posix_memalign(&q, 256, 1000)) return 1; free(a); free(b); free(c); free(d); free(e); free(q); free(s); } return 0; }\n";

#[test]
fn ltrace_and_the_recorder_see_the_same_calls() {
    if !have("ltrace") {
        return;
    }
    let bench = Bench::new();
    std::fs::write(bench.path("calls.c"), PROGRAM).expect("the source");
    for flags in ["-fplt", "-fno-plt"] {
        bench.compile("calls.c", "calls", &["-O1", "-fno-builtin", flags]).expect("a C compiler");
        bench.ok("record --backend ltrace -o l.hkt -- ./calls");
        let info = bench.json("info l.hkt");
        let seen = ["mallocs", "callocs", "reallocs", "aligned_allocs"].map(|call| number(&info, call));
        assert_eq!(seen, [60, 20, 20, 60], "{flags}");
    }
}

/// A child that takes another environment out of the recorder, in valgrind.
#[test]
fn programs_in_valgrind_without_the_recorder_are_counted() {
    if !have("valgrind") {
        return;
    }
    let bench = Bench::new();
    let report = |command: &str| -> serde_json::Value {
        let ran = bench.run(&format!("record --accesses full --format json -o v.hkt -- {command}"));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        serde_json::from_str(&ran.stderr).unwrap_or_else(|why| panic!("{why}: {}", ran.stderr))
    };
    let unseen = report("env LD_PRELOAD= ls /");
    if !unseen["unobserved"].is_null() {
        return eprintln!("skipped: the kernel does not report processes: {}", unseen["unobserved"]);
    }
    let names = unseen["unseen_programs"].as_array().expect("a list");
    assert_eq!(names.len(), 1, "{unseen}");
    assert_eq!(names[0]["command"][0], "a program in valgrind");
    assert_eq!(number(&bench.json("info v.hkt"), "quality.programs_unrecorded"), 1);
    let seen = report("env ls /");
    assert_eq!(seen["unseen_programs"].as_array().map(Vec::len), Some(0), "{seen}");
}
