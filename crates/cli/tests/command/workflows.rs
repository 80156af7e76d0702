//! The workflow of docs/how-to/budget.md: its steps, run in order on programs of the test's own.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::Bench;

const WORKFLOW: &str = include_str!("../../../../docs/workflows/memory-budget.yml");

/// The step that the test has done: it installs hksim.
const INSTALLS: &str = "Install hksim";

const BUDGET: &str = r#"result = "budget.json"
traces = ["app.hkt"]

[design.shipped]
on = "glibc"
live_bytes_end = "+4K"
rss_bytes_end = "+64K"

[design.superslab]
policy = "default+huge=never"
installs = "+2%"
"#;

/// A program that prints how many bytes it does not free.
const PROGRAM: &str = r#"#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define FAR __attribute__((noinline, noclone))
static void *volatile last;
static size_t kept_bytes;
FAR static void *make(size_t bytes) {
    kept_bytes += bytes;
    return last = memset(malloc(bytes), 1, bytes);
}
FAR static void drop(void *block, size_t bytes) {
    kept_bytes -= bytes;
    free(block);
}
FAR static void answer(int request) {
    void *line = make(100);
    drop(line, 100);
}
FAR static void load_table(void) {
    for (int row = 0; row < 2000; row++) make(500);
}
int main(void) {
    load_table();
    for (int request = 0; request < 3670; request++) answer(request);
    fprintf(stderr, "kept %zu\n", kept_bytes);
    return 0;
}
"#;

/// The commands of the workflow, each with the name of its step.
fn steps() -> Vec<(String, String)> {
    let mut name = String::new();
    let mut steps = Vec::new();
    for line in WORKFLOW.lines().map(|line| line.trim_start().trim_start_matches("- ")) {
        if let Some(words) = line.strip_prefix("name: ") {
            name = words.to_string();
        } else if let Some(command) = line.strip_prefix("run: ") {
            assert!(!command.starts_with(['|', '>']), "{command}: the test reads commands of one line");
            steps.push((name.clone(), command.to_string()));
        }
    }
    steps
}

/// Runs the steps until one fails, as the service does. Returns the failed step, and all that was printed.
fn run(bench: &Bench, program: &str) -> (Option<String>, String) {
    fs::write(bench.path("app.c"), program).expect("the source");
    let path = format!("{}:{}", bench.path("bin").display(), env::var("PATH").expect("PATH"));
    let mut printed = String::new();
    for (name, command) in steps().into_iter().filter(|(name, _)| name != INSTALLS) {
        let mut shell = Command::new("bash");
        shell.args(["-e", "-o", "pipefail", "-c", &command]).current_dir(bench.folder()).env("PATH", &path);
        let output = shell.output().expect("a shell");
        printed += &String::from_utf8_lossy(&output.stdout);
        printed += &String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(1), "{name}: {printed}");
            return (Some(name), printed);
        }
    }
    (None, printed)
}

/// A project whose result is stored.
fn project() -> Bench {
    let bench = Bench::new();
    fs::create_dir(bench.path("bin")).expect("a folder");
    symlink(Path::new(env!("CARGO_BIN_EXE_hksim")), bench.path("bin/hksim")).expect("a link");
    fs::write(bench.path("budget.toml"), BUDGET).expect("a budget");
    run(&bench, PROGRAM);
    bench.ok("check budget.toml --update");
    bench
}

/// The program's own count.
fn kept(printed: &str) -> u64 {
    let line = printed.lines().find_map(|line| line.strip_prefix("kept "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or_else(|| panic!("no count: {printed}"))
}

fn rows(bench: &Bench) -> Vec<Value> {
    let ran = bench.run("check budget.toml --format json");
    let result: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
    result["rows"].as_array().expect("rows").clone()
}

#[test]
fn a_workflow_passes_until_the_program_leaks_or_needs_more() {
    assert_eq!(steps().len(), 4, "install, build, record, check");
    let bench = project();
    // A comment moves lines and nothing else.
    let (failed, printed) = run(&bench, &format!("// A comment.\n{PROGRAM}"));
    assert_eq!(failed, None, "{printed}");
    assert!(printed.ends_with("budget: ok\n"), "{printed}");
    assert_eq!(rows(&bench)[0]["figures"]["live_bytes_end"], kept(&printed));

    // 0.35 MiB: 3 670 lines of 100 bytes.
    let leak = PROGRAM.replace("    drop(line, 100);\n", "    if (request < 0) drop(line, 100);\n");
    let (failed, printed) = run(&bench, &leak);
    assert_eq!(failed.as_deref(), Some("Check the budget"), "{printed}");
    assert_eq!(rows(&bench)[0]["figures"]["live_bytes_end"], kept(&printed));
    let grew =
        "What grew most: bytes never freed of requests of up to 128 B by `make`, called by `answer`: 0 B -> 358.4 KiB.";
    let broken = printed.lines().find(|line| line.starts_with("broken: shipped on app.hkt: "));
    assert!(broken.is_some_and(|line| line.ends_with(grew)), "{printed}");
    let head = "::error file=budget.toml,line=4,title=shipped on app.hkt::broken: shipped on app.hkt: ";
    assert!(printed.lines().any(|line| line.starts_with(head) && line.ends_with(grew)), "{printed}");

    // 3 % more pages, all of them freed at the end.
    let more = PROGRAM.replace(
        "int main(void) {\n",
        "FAR static void sort_rows(void) {\n    void *all[12];\n    for (int i = 0; i < 12; i++) all[i] = make(3000);\n    \
         for (int i = 0; i < 12; i++) drop(all[i], 3000);\n}\nint main(void) {\n",
    );
    let more = more.replace("    fprintf", "    sort_rows();\n    fprintf");
    let (failed, printed) = run(&bench, &more);
    assert_eq!(failed.as_deref(), Some("Check the budget"), "{printed}");
    let superslab = &rows(&bench)[1];
    assert_eq!(superslab["limits"][0]["is_within"], false, "{superslab}");
    let ratio = superslab["limits"][0]["amount"].as_f64().expect("an amount")
        / superslab["limits"][0]["stored"].as_f64().expect("a stored amount");
    assert!((1.02..1.06).contains(&ratio), "{ratio}");
    let grew = "of requests of up to 4.0 KiB by `make`, called by `sort_rows`: 0 B -> 35.2 KiB.";
    let broken = printed.lines().find(|line| line.starts_with("broken: superslab on app.hkt: "));
    assert!(broken.is_some_and(|line| line.ends_with(grew)), "{printed}");
    assert!(!printed.contains("broken: shipped"), "what is freed is no leak: {printed}");
}
