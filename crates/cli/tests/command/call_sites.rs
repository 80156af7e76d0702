//! Call sites through the command: names against the source, and figures against the program's own.

use std::process::Command;

use crate::support::Bench;

const SOURCE: &str = r#"#include <stdlib.h>
#define FAR __attribute__((noinline, noclone))
static void *volatile kept[1000];
static FAR void many_small(int at) {
    kept[at] = malloc(10);
}
static FAR void few_large(int at) {
    kept[at] = malloc(5000);
}
int main(void) {
    for (int i = 0; i < 60; i++) many_small(i);
    for (int i = 0; i < 60; i++) free(kept[i]);
    for (int i = 0; i < 7; i++) few_large(i);
    free(kept[0]);
    return 0;
}
"#;

fn compile(bench: &Bench, flags: &[&str]) {
    std::fs::write(bench.path("app.c"), SOURCE).expect("the source");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-fno-builtin", "-o", "app", "app.c"]).args(flags).current_dir(bench.folder());
    let status = cc.status().expect("a C compiler");
    assert!(status.success());
}

fn sites(bench: &Bench, line: &str) -> Vec<serde_json::Value> {
    bench.json(line)["sites"].as_array().expect("an array").clone()
}

#[test]
fn top_call_sites_have_the_figures_and_names_of_the_source() {
    let bench = Bench::new();
    compile(&bench, &["-g"]);
    bench.ok("record -q --stacks=4 -o app.hkt -- ./app");
    let bytes = sites(&bench, "info app.hkt --sites");
    let names = |site: &serde_json::Value| site["stack"].as_array().expect("frames").clone();
    let frame = |site: &serde_json::Value, at: usize| names(site)[at].as_str().expect("text").to_string();
    assert_eq!(bytes.len(), 2);
    assert!(frame(&bytes[0], 0).starts_with("few_large  ") && frame(&bytes[0], 0).ends_with("app.c:8"), "{bytes:?}");
    assert!(frame(&bytes[0], 1).starts_with("main  ") && frame(&bytes[0], 1).ends_with("app.c:13"), "{bytes:?}");
    for (field, expected) in [("calls", 7), ("allocated_bytes", 35_000), ("peak_bytes", 35_000), ("end_bytes", 30_000)]
    {
        assert_eq!(bytes[0][field], expected, "{field}");
    }
    for (field, expected) in [("calls", 60), ("allocated_bytes", 600), ("peak_bytes", 0), ("end_objects", 0)] {
        assert_eq!(bytes[1][field], expected, "{field}");
    }
    let calls = sites(&bench, "info app.hkt --sites=1 --by calls");
    assert!(calls.len() == 1 && frame(&calls[0], 0).starts_with("many_small  "), "{calls:?}");

    bench.ok("trace symbolise app.hkt -o named.hkt");
    std::fs::remove_file(bench.path("app")).expect("the program goes");
    assert_eq!(sites(&bench, "info named.hkt --sites"), bytes, "names are in the trace");
    let nameless = sites(&bench, "info app.hkt --sites");
    assert!(frame(&nameless[0], 0).contains("app+0x"), "{nameless:?}");
}

#[test]
fn a_program_of_another_build_is_not_asked() {
    let bench = Bench::new();
    compile(&bench, &["-g", "-Wl,--build-id"]);
    bench.ok("record -q --stacks -o app.hkt -- ./app");
    compile(&bench, &["-g", "-Wl,--build-id", "-DOTHER", "-O1"]);
    let ran = bench.run("info app.hkt --sites");
    assert!(ran.stderr.contains("another build"), "{}", ran.stderr);
    assert!(!ran.stdout.contains("few_large"), "{}", ran.stdout);
}
