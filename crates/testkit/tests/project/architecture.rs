//! Rules for the source tree: dependencies between crates, maximum length of files and functions, forbidden text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// Maximum number of lines in a source file.
const FILE_LINES_MAX: usize = 600;
/// Maximum number of lines in a function.
const FUNCTION_LINES_MAX: usize = 70;

/// The crates of this workspace that each crate may depend on. ARCHITECTURE.md has the reasons.
const ARROWS: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("text", &[]),
    ("call-sites", &["recording-files"]),
    ("container", &[]),
    ("trace", &["call-sites", "container", "recording-files"]),
    ("linux-mm", &[]),
    ("linux-probe", &[]),
    ("timing", &["linux-probe"]),
    ("recording-files", &[]),
    ("output-files", &["recording-files"]),
    ("embedded", &[]),
    ("cost-model", &["linux-mm", "linux-probe", "output-files", "recording-files"]),
    ("conformance", &["linux-mm", "linux-probe"]),
    ("engine", &["linux-mm", "policy", "trace"]),
    ("sim", &["policy", "trace", "engine", "linux-mm"]),
    ("designs", &["engine", "policy", "text"]),
    ("time-model", &["cost-model", "engine", "linux-mm", "policy", "sim", "trace"]),
    (
        "explore",
        &[
            "conformance",
            "cost-model",
            "designs",
            "engine",
            "linux-mm",
            "linux-probe",
            "policy",
            "sim",
            "text",
            "time-model",
            "trace",
        ],
    ),
    ("inspect", &["linux-mm", "linux-probe", "text"]),
    ("memory-trace", &["call-sites", "container", "recording-files"]),
    ("memory-record", &["linux-probe", "memory-trace", "recording-files"]),
    ("memory-sim", &["call-sites", "cost-model", "linux-mm", "memory-trace", "policy", "recording-files", "text"]),
    ("native", &["policy"]),
    ("native-ffi", &["native", "policy"]),
    ("record-preload", &["linux-probe"]),
    ("record", &["embedded", "linux-probe", "recording-files", "text", "trace"]),
    ("replay", &["linux-probe", "policy", "text", "timing", "trace", "engine", "native"]),
    ("attribution", &["designs", "engine", "explore", "linux-probe", "policy", "replay", "sim", "text", "trace"]),
    (
        "validate",
        &[
            "conformance",
            "cost-model",
            "designs",
            "engine",
            "explore",
            "linux-mm",
            "linux-probe",
            "memory-record",
            "memory-sim",
            "memory-trace",
            "policy",
            "replay",
            "sim",
            "text",
            "time-model",
            "timing",
            "trace",
        ],
    ),
    (
        "budget",
        &[
            "attribution",
            "cost-model",
            "designs",
            "engine",
            "explore",
            "memory-sim",
            "memory-trace",
            "policy",
            "replay",
            "sim",
            "text",
            "time-model",
            "timing",
            "trace",
        ],
    ),
    (
        "results",
        &[
            "attribution",
            "budget",
            "cost-model",
            "designs",
            "engine",
            "explore",
            "inspect",
            "linux-mm",
            "memory-sim",
            "memory-trace",
            "policy",
            "replay",
            "sim",
            "text",
            "time-model",
            "timing",
            "trace",
            "validate",
        ],
    ),
    (
        "reports",
        &[
            "budget",
            "cost-model",
            "designs",
            "engine",
            "explore",
            "inspect",
            "linux-mm",
            "memory-sim",
            "memory-trace",
            "output-files",
            "policy",
            "replay",
            "results",
            "sim",
            "text",
            "timing",
            "trace",
            "validate",
        ],
    ),
    (
        "trial",
        &[
            "conformance",
            "embedded",
            "linux-mm",
            "linux-probe",
            "record",
            "replay",
            "results",
            "text",
            "timing",
            "validate",
        ],
    ),
    (
        "choose",
        &[
            "engine",
            "explore",
            "linux-mm",
            "memory-sim",
            "policy",
            "replay",
            "results",
            "text",
            "timing",
            "trial",
            "validate",
        ],
    ),
    (
        "cli",
        &[
            "attribution",
            "budget",
            "choose",
            "conformance",
            "cost-model",
            "embedded",
            "engine",
            "explore",
            "linux-mm",
            "linux-probe",
            "memory-record",
            "memory-sim",
            "memory-trace",
            "native",
            "policy",
            "record",
            "output-files",
            "recording-files",
            "replay",
            "reports",
            "results",
            "sim",
            "text",
            "timing",
            "trace",
            "trial",
            "validate",
            "designs",
        ],
    ),
    ("testkit", &["policy", "trace"]),
];

/// Sections of a manifest: name -> keys.
fn manifest(krate: &str) -> BTreeMap<String, BTreeSet<String>> {
    let path = root().join("crates").join(krate).join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_string();
        } else if let Some((key, _)) = line.split_once(['.', '=', ' ']) {
            sections.entry(section.clone()).or_default().insert(key.to_string());
        }
    }
    sections
}

fn ours(keys: Option<&BTreeSet<String>>) -> BTreeSet<String> {
    let keys = keys.into_iter().flatten();
    keys.filter_map(|key| key.strip_prefix("hksim-")).map(str::to_string).collect()
}

fn crates() -> BTreeSet<String> {
    let folders = fs::read_dir(root().join("crates")).expect("the crates folder");
    folders.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    assert!(found.len() > 50, "the sources were found");
    found
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let known: BTreeSet<String> = ARROWS.iter().map(|(krate, _)| krate.to_string()).collect();
    assert_eq!(known, crates(), "ARROWS names every crate");
    for (krate, allowed) in ARROWS {
        let sections = manifest(krate);
        let allowed: BTreeSet<String> = allowed.iter().map(|name| name.to_string()).collect();
        let used = ours(sections.get("dependencies"));
        assert!(used.is_subset(&allowed), "{krate} may depend on {allowed:?}, and depends on {used:?}");
    }
}

#[test]
fn simulation_and_measurement_meet_only_in_validate() {
    for (krate, other) in [("sim", "native"), ("native", "sim"), ("sim", "replay"), ("replay", "sim")] {
        let sections = manifest(krate);
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            assert!(
                !ours(sections.get(kind)).contains(other),
                "{krate} must not depend on {other}, not even in {kind}"
            );
        }
    }
    for krate in crates() {
        let sections = manifest(&krate);
        assert!(!sections.values().any(|keys| keys.contains("hksim")), "{krate} must not depend on the command line");
    }
    let policy = manifest("policy");
    let uses: Vec<&String> = policy.get("dependencies").into_iter().flatten().collect();
    assert_eq!(uses, ["serde"], "serde is the only dependency of policy, and it is optional");
}

#[test]
fn the_policy_uses_no_std_no_unsafe_and_no_clock() {
    let mut files = Vec::new();
    sources(&root().join("crates/policy/src"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable source");
        for banned in ["std::", "unsafe ", "static mut", "Instant", "SystemTime", "thread_local"] {
            assert!(!text.contains(banned), "{}: policy has no `{banned}`", file.display());
        }
    }
    let lib = fs::read_to_string(root().join("crates/policy/src/lib.rs")).expect("lib.rs");
    assert!(lib.contains("#![no_std]"));
}

#[test]
fn files_are_short() {
    for file in all_sources() {
        let lines = fs::read_to_string(&file).expect("a readable source").lines().count();
        assert!(lines <= FILE_LINES_MAX, "{}: {lines} lines, at most {FILE_LINES_MAX}", file.display());
    }
}

/// Finds functions in source formatted by rustfmt: from the line with `fn` to the closing brace with the same
/// indentation. Returns (first line, number of lines).
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let starts = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) ")).unwrap_or(line);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let line = line.strip_prefix("const ").unwrap_or(line);
        let line = line.strip_prefix("unsafe ").unwrap_or(line);
        let line = line.strip_prefix("extern \"C\" ").unwrap_or(line);
        line.starts_with("fn ")
    };
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate().filter(|(_, line)| starts(line)) {
        let end = lines[first..].iter().position(|other| indent(other) == indent(line) && other.trim() == "}");
        let own_line_end = line.trim_end().ends_with([';', '}']);
        if let (Some(length), false) = (end, own_line_end) {
            found.push((first + 1, length + 1));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let mut measured = 0;
    for file in all_sources() {
        let text = fs::read_to_string(&file).expect("a readable source");
        for (line, length) in functions(&text) {
            measured += 1;
            assert!(
                length <= FUNCTION_LINES_MAX,
                "{}:{line}: a function of {length} lines, at most {FUNCTION_LINES_MAX}",
                file.display()
            );
        }
    }
    assert!(measured > 500, "functions were found: {measured}");
}

#[test]
fn nothing_is_left_unfinished() {
    let banned = [concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("FIX", "ME"), concat!("db", "g!(")];
    for file in all_sources() {
        let text = fs::read_to_string(&file).expect("a readable source");
        for word in banned {
            assert!(!text.contains(word), "{}: contains `{word}`", file.display());
        }
    }
}
