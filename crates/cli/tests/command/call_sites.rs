//! Call sites: names compared with the source, figures with those that the program prints.

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
    bench.compile("app.c", "app", &[&["-O2", "-fno-builtin"], flags].concat()).expect("a C compiler");
}

fn sites(bench: &Bench, line: &str) -> Vec<serde_json::Value> {
    bench.json(line)["sites"].as_array().expect("an array").clone()
}

#[test]
fn top_call_sites_match_the_source() {
    let bench = Bench::new();
    compile(&bench, &["-g"]);
    bench.ok("record -q --stacks=4 -o app.hkt -- ./app");
    let bytes = sites(&bench, "info app.hkt --sites");
    let names = |site: &serde_json::Value| site["stack"].as_array().expect("frames").clone();
    let frame = |site: &serde_json::Value, at: usize| names(site)[at].as_str().expect("text").to_string();
    assert_eq!(bytes.len(), 2);
    assert!(frame(&bytes[0], 0).starts_with("few_large  ") && frame(&bytes[0], 0).ends_with("app.c:8"), "{bytes:?}");
    assert!(frame(&bytes[0], 1).starts_with("main  ") && frame(&bytes[0], 1).ends_with("app.c:13"), "{bytes:?}");
    for (field, expected) in
        [("calls", 7), ("allocated_bytes", 35_000), ("bytes_at_peak", 35_000), ("bytes_at_end", 30_000)]
    {
        assert_eq!(bytes[0][field], expected, "{field}");
    }
    for (field, expected) in [("calls", 60), ("allocated_bytes", 600), ("bytes_at_peak", 0), ("objects_at_end", 0)] {
        assert_eq!(bytes[1][field], expected, "{field}");
    }
    bench.ok("info app.hkt --sites --format csv -o sites.csv");
    let csv = std::fs::read_to_string(bench.path("sites.csv")).expect("the sites");
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines.len() == 3 && lines[0].contains("allocated_bytes") && lines[0].ends_with(",stack"), "{csv}");
    assert!(lines[1].contains(",few_large  ") && lines[1].contains(";main  ") && lines[1].contains(",35000,"), "{csv}");
    let calls = sites(&bench, "info app.hkt --sites=1 --by calls");
    assert!(calls.len() == 1 && frame(&calls[0], 0).starts_with("many_small  "), "{calls:?}");

    bench.ok("trace symbolise app.hkt -o named.hkt");
    std::fs::remove_file(bench.path("app")).expect("the program can be removed");
    assert_eq!(sites(&bench, "info named.hkt --sites"), bytes, "the names are stored in the trace");
    let nameless = sites(&bench, "info app.hkt --sites");
    assert!(frame(&nameless[0], 0).contains("app+0x"), "{nameless:?}");
}

#[test]
fn symbols_of_another_build_are_not_used() {
    let bench = Bench::new();
    compile(&bench, &["-g", "-Wl,--build-id"]);
    bench.ok("record -q --stacks -o app.hkt -- ./app");
    compile(&bench, &["-g", "-Wl,--build-id", "-DOTHER", "-O1"]);
    let ran = bench.run("info app.hkt --sites");
    assert!(ran.stderr.contains("another build"), "{}", ran.stderr);
    assert!(!ran.stdout.contains("few_large"), "{}", ran.stdout);
}

/// The function names on the stack of the call that requested this many bytes.
fn names_of(bench: &Bench, bytes: u64) -> Vec<String> {
    let all = sites(bench, "info app.hkt --sites=1000");
    let site = all.iter().find(|site| site["allocated_bytes"] == bytes).expect("a call of that size");
    site["stack"].as_array().expect("frames").iter().map(|frame| frame.as_str().expect("text").to_string()).collect()
}

fn built(bench: &Bench, compiler: &str, words: &[&str], source: &str) -> bool {
    let file = words.last().expect("a source file");
    std::fs::write(bench.path(file), source).expect("the source");
    match Command::new(compiler).args(words).current_dir(bench.folder()).status() {
        Ok(status) => {
            assert!(status.success(), "{compiler} {words:?}");
            true
        }
        Err(why) => {
            eprintln!("skipped: {compiler}: {why}");
            false
        }
    }
}

#[test]
fn cpp_names_are_demangled() {
    let bench = Bench::new();
    let source = "#include <cstdlib>\n\
        namespace shapes { template <class T> struct Circle { \
        __attribute__((noinline)) void *grow(unsigned long n) const { return last = std::malloc(n); } static void *volatile last; }; \
        template <class T> void *volatile Circle<T>::last; }\n\
        int main() { return !shapes::Circle<int>().grow(7654321); }\n";
    if !built(&bench, "g++", &["-O1", "-g", "-fno-builtin", "-o", "app", "app.cc"], source) {
        return;
    }
    bench.ok("record -q --stacks -o app.hkt -- ./app");
    let names = names_of(&bench, 7_654_321);
    assert!(names[0].starts_with("shapes::Circle<int>::grow(unsigned long) const  "), "{names:?}");
    assert!(names[1].starts_with("main  "), "{names:?}");
}

#[test]
fn rust_names_are_demangled() {
    let bench = Bench::new();
    let source = "mod shapes { pub struct Circle<T>(pub Vec<T>); impl<T: Default + Clone> Circle<T> { \
        #[inline(never)] pub fn grow(&mut self, n: usize) { self.0.reserve_exact(n); } } }\n\
        fn main() { let mut circle = shapes::Circle::<u8>(Vec::new()); circle.grow(7654321); assert!(circle.0.is_empty()); }\n";
    for mangling in [&[][..], &["-Csymbol-mangling-version=v0"]] {
        let words = [&["-g"], mangling, &["-o", "app", "app.rs"]].concat();
        if !built(&bench, "rustc", &words, source) {
            return;
        }
        bench.ok("record -q --stacks=16 -o app.hkt -- ./app");
        let names = names_of(&bench, 7_654_321);
        let named = |wanted: &[&str]| names.iter().any(|name| wanted.iter().all(|part| name.contains(part)));
        assert!(named(&["shapes::Circle<", ">::grow"]), "{mangling:?}: {names:#?}");
        assert!(named(&["app::main"]), "{mangling:?}: {names:#?}");
        assert!(!named(&["_ZN"]) && !named(&["_RN"]), "{mangling:?}: {names:#?}");
    }
}

/// The stacks of a folded file, with their values.
fn folded(bench: &Bench, name: &str) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(bench.path(name)).expect("a file");
    let line = |line: &str| {
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        (stack.to_string(), value.parse().expect("a number"))
    };
    text.lines().map(line).collect()
}

#[test]
fn folded_stacks_have_the_figures_of_the_source() {
    let bench = Bench::new();
    compile(&bench, &["-g"]);
    bench.ok("record -q --stacks=4 -o app.hkt ./app");
    for (by, small, large) in [("calls", 60, 7), ("bytes", 600, 35_000), ("peak", 0, 35_000), ("end", 0, 30_000)] {
        bench.ok(&format!("info app.hkt --sites=1 --by {by} --folded app.folded"));
        let stacks = folded(&bench, "app.folded");
        let value = |function: &str| {
            let ending = format!("main;{function}");
            stacks.iter().filter(|(stack, _)| stack.ends_with(&ending)).map(|(_, value)| value).sum::<u64>()
        };
        assert_eq!((value("many_small"), value("few_large")), (small, large), "{by}: {stacks:?}");
    }
    let explained = bench.json("explain app.hkt --huge never --causes 0 --folded installs.folded");
    let stacks = folded(&bench, "installs.folded");
    assert_eq!(
        stacks.iter().map(|(_, value)| value).sum::<u64>(),
        crate::support::number(&explained, "installs_total")
    );
    // Each large block has a page of its own, the small ones share one.
    let of = |function: &str| stacks.iter().find(|(stack, _)| stack.ends_with(function)).map_or(0, |(_, value)| *value);
    assert!(of(";few_large") >= 7 && of(";many_small") < 7, "{stacks:?}");
}

/// Reads a pprof file without any code of hksim: for each stack its function names, innermost first, and its values;
/// and the names of the values.
const READ_PPROF: &str = r#"
import gzip, json, sys
def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]; at += 1
        value |= (byte & 127) << shift; shift += 7
        if byte < 128: return value, at
def fields(data):
    at, found = 0, {}
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0: value, at = varint(data, at)
        elif tag & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else: sys.exit(f"wire type {tag & 7}")
        found.setdefault(tag >> 3, []).append(value)
    return found
def packed(data):
    at, values = 0, []
    while at < len(data):
        value, at = varint(data, at); values.append(value)
    return values
one = lambda message, field: message.get(field, [0])[0]
profile = fields(gzip.open(sys.argv[1]).read())
strings = [text.decode() for text in profile[6]]
assert strings[0] == ""
kinds = [(strings[one(kind, 1)], strings[one(kind, 2)]) for kind in map(fields, profile[1])]
functions = {one(f, 1): (strings[one(f, 2)], strings[one(f, 4)]) for f in map(fields, profile[5])}
places = {}
for place in map(fields, profile[4]):
    line = fields(place[4][0])
    name, file = functions[one(line, 1)]
    places[one(place, 1)] = f"{name} {file.rsplit('/')[-1]}:{one(line, 2)}"
samples = [[[places[at] for at in packed(s[1][0])], packed(s[2][0])] for s in map(fields, profile[2])]
print(json.dumps({"kinds": kinds, "shown": strings[one(profile, 14)], "samples": samples,
    "program": strings[one(fields(profile[3][0]), 5)]}))
"#;

fn pprof(bench: &Bench, name: &str) -> serde_json::Value {
    let python = Command::new("python3").args(["-c", READ_PPROF, name]).current_dir(bench.folder()).output();
    let python = python.expect("python3");
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    serde_json::from_slice(&python.stdout).expect("JSON")
}

#[test]
fn pprof_files_have_the_figures_of_the_source() {
    let bench = Bench::new();
    compile(&bench, &["-g"]);
    bench.ok("record -q --stacks=4 -o app.hkt ./app");
    bench.ok("info app.hkt --by peak --pprof app.pb.gz");
    let profile = pprof(&bench, "app.pb.gz");
    let kinds =
        [("alloc_space", "bytes"), ("alloc_objects", "count"), ("peak_space", "bytes"), ("inuse_space", "bytes")];
    assert_eq!(profile["kinds"], serde_json::json!(kinds));
    assert_eq!(profile["shown"], "peak_space");
    let samples = profile["samples"].as_array().expect("samples");
    let values = |place: &str| samples.iter().find(|sample| sample[0][0] == place).map(|sample| sample[1].clone());
    assert_eq!(values("few_large app.c:8"), Some(serde_json::json!([35_000, 7, 35_000, 30_000])), "{samples:?}");
    assert_eq!(values("many_small app.c:5"), Some(serde_json::json!([600, 60, 0, 0])), "{samples:?}");
    assert_eq!(samples[0][0][1], "main app.c:13");
    let program = profile["program"].as_str().expect("the first mapping");
    assert!(program.ends_with("/app"), "pprof takes the first mapping for the program: {program}");

    let explained = bench.json("explain app.hkt --huge never --causes 0 --pprof installs.pb.gz");
    let profile = pprof(&bench, "installs.pb.gz");
    let installs = profile["samples"].as_array().expect("samples").iter().filter_map(|sample| sample[1][0].as_u64());
    assert_eq!(installs.sum::<u64>(), crate::support::number(&explained, "installs_total"));
}
