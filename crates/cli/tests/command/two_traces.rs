//! `info A B`: figures of two traces whose differences are known.

use crate::support::{Bench, number};

/// A program that makes `objects` blocks of `bytes` bytes, and frees half of them.
fn source(objects: u32, bytes: u32) -> String {
    format!(
        "#include <stdlib.h>\nstatic void *volatile kept[{objects}];\n\
         __attribute__((noinline, noclone)) static void make(int at) {{ kept[at] = malloc({bytes}); }}\n\
         int main(void) {{ for (int i = 0; i < {objects}; i++) make(i);\n\
         for (int i = 0; i < {objects}; i += 2) free(kept[i]); return 0; }}\n"
    )
}

fn record(bench: &Bench, name: &str, objects: u32, bytes: u32) {
    std::fs::write(bench.path("app.c"), source(objects, bytes)).expect("the source");
    bench.compile("app.c", "app", &["-g", "-O1", "-fno-builtin"]).expect("a C compiler");
    bench.ok(&format!("record -q --stacks=4 -o {name}.hkt ./app"));
    bench.ok(&format!("trace symbolise {name}.hkt -o {name}.named.hkt"));
}

#[test]
fn differences_are_those_of_the_programs() {
    let bench = Bench::new();
    record(&bench, "before", 100, 48);
    record(&bench, "after", 300, 3_000);
    let result = bench.json("info before.named.hkt after.named.hkt --sites");
    let figure = |name: &str| {
        let figures = result["figures"].as_array().expect("figures");
        let row = figures.iter().find(|figure| figure["name"] == name).expect("a figure");
        (number(row, "first"), number(row, "second"), row["ratio"].as_f64())
    };
    assert_eq!(figure("allocations"), (100, 300, Some(3.0)));
    assert_eq!(figure("frees"), (50, 150, Some(3.0)));
    assert_eq!(figure("live_bytes_peak"), (4_800, 900_000, Some(187.5)));
    assert_eq!(figure("forks"), (0, 0, None));
    // No request has a size of the other program's.
    assert_eq!(result["size_distance"], 1.0);
    let sites = result["sites"].as_array().expect("sites");
    assert_eq!(sites.len(), 1, "the same function, whatever its size and address: {sites:?}");
    assert_eq!((number(&sites[0], "first"), number(&sites[0], "second")), (4_800, 900_000));
    // The objects that a block outlives are larger, too: 448.0 KiB instead of 2.4 KiB.
    let sentences = result["sentences"].as_array().expect("sentences");
    let sentence = "bytes allocated: 878.9 KiB instead of 4.7 KiB (x 188).";
    assert!(sentences.iter().any(|found| found == sentence), "{sentences:?}");
}

#[test]
fn a_trace_does_not_differ_from_itself() {
    let bench = Bench::new();
    record(&bench, "app", 20, 100);
    let result = bench.json("info app.hkt app.hkt --sites");
    let sentences = ["No figure differs by more than 1 %.", "Sizes are distributed alike."];
    assert_eq!(result["sentences"], serde_json::json!(sentences));
    assert_eq!(result["sites"], serde_json::json!([]));
    let refused = bench.refused("info app.hkt app.hkt --plot=x.svg");
    assert!(refused.contains("--plot"), "{refused}");
}

/// Compiles and records a source in a directory of its own, as a program with a name of its own.
fn record_build(bench: &Bench, name: &str, source: &str) {
    std::fs::create_dir_all(bench.path(name)).expect("a directory");
    std::fs::write(bench.path(&format!("{name}/app.c")), source).expect("the source");
    bench.compile("app.c", &format!("{name}/app-{name}"), &["-g", "-O1", "-fno-builtin"]).expect("a C compiler");
    bench.ok(&format!("record -q --stacks=6 -o {name}.hkt {name}/app-{name}"));
}

#[test]
fn two_builds_share_their_call_sites() {
    let bench = Bench::new();
    record_build(&bench, "old", &source(100, 48));
    // One comment line more, and a function that moves the code after it.
    let moved = source(100, 96).replace(
        "int main(void) {",
        "// a comment\n__attribute__((used)) static int more(int x) { return x * x + 3 / (x | 1); }\nint main(void) {",
    );
    record_build(&bench, "new", &format!("// another comment\n{moved}"));
    let result = bench.json("info old.hkt new.hkt --sites");
    let sites = result["sites"].as_array().expect("sites");
    assert_eq!(sites.len(), 1, "one site, whatever its lines and offsets: {sites:?}");
    assert_eq!((number(&sites[0], "first"), number(&sites[0], "second")), (4_800, 9_600));
    let text = bench.ok("info old.hkt new.hkt --sites");
    assert!(text.contains("app.c:3") && text.contains("app.c:4)"), "the lines of both: {text}");
}

#[test]
fn a_comment_changes_no_call_site() {
    let bench = Bench::new();
    // Two calls on neighbouring lines: with a comment above, the first is where the second was.
    let source = "#include <stdlib.h>\nstatic void *volatile last;\n\
        __attribute__((noinline, noclone)) static void make(int bytes) { last = malloc(bytes); }\n\
        int main(void) {\nfor (int i = 0; i < 10; i++) make(48);\nfor (int i = 0; i < 30; i++) make(700);\nreturn 0; }\n";
    record_build(&bench, "old", source);
    record_build(&bench, "new", &source.replace("int main(void) {\n", "int main(void) {\n// A comment.\n"));
    let result = bench.json("info old.hkt new.hkt --sites");
    assert_eq!(result["sites"], serde_json::json!([]), "{result}");
    // What changed is still found, function by function.
    let more = source.replace("i < 30", "i < 31").replace("int main(void) {\n", "int main(void) {\n// A comment.\n");
    record_build(&bench, "more", &more);
    let result = bench.json("info old.hkt more.hkt --sites");
    let sites = result["sites"].as_array().expect("sites");
    assert_eq!(sites.len(), 1, "{sites:?}");
    assert_eq!((number(&sites[0], "first"), number(&sites[0], "second")), (21_480, 22_180));
}

#[test]
fn names_of_c_functions_stay_as_they_are() {
    let bench = Bench::new();
    let one = |name: &str| format!("__attribute__((noinline)) void *{name}(void) {{ return malloc(100); }}\n");
    let names = ["f", "i", "d", "St", "Pc"];
    let functions: String = names.map(one).concat();
    let calls: String = names.map(|name| format!("kept = {name}();")).concat();
    let source =
        format!("#include <stdlib.h>\nvoid *volatile kept;\n{functions}int main(void) {{ {calls} return 0; }}\n");
    record_build(&bench, "c", &source);
    // Without debug information, names come from the symbol table.
    std::fs::create_dir_all(bench.path("plain")).expect("a directory");
    let mut strip = std::process::Command::new("strip");
    strip.args(["-g", "-o", "plain/app", "c/app-c"]).current_dir(bench.folder());
    assert!(strip.status().expect("strip").success());
    bench.ok("record -q --stacks=6 -o plain.hkt plain/app");
    for trace in ["c", "plain"] {
        let text = bench.ok(&format!("info {trace}.hkt --sites=20"));
        for name in names {
            assert!(text.contains(&format!("    {name}  ")), "{trace}: no `{name}` in {text}");
        }
    }
}
