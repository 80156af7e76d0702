//! The files of the command: how many lines they have, and which of them use which.
//!
//! The command holds flags, argument structs, text views and the handling of files and the terminal; libraries hold the
//! rest. So its size is bounded, its files use each other in layers, and none in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of lines of the command's sources, without tests. It only falls.
const COMMAND_LINES_MAX: usize = 9_999;

/// The layers of the command's modules, the lowest first. A module uses those of its own layer and of lower ones. Only
/// the first part of a path is given: `output` stands for all files of that folder.
const LAYERS: [&[&str]; 6] = [
    &["output"],
    &["flags", "forks", "host", "inputs", "pictures", "question", "runs", "stack_files", "system_time"],
    &["allocator_settings", "allocators", "command_line", "read_result", "repeat_command"],
    &["bundle", "memory", "replays"],
    &["commands"],
    &["main"],
];

/// A module's path: `["commands", "sim"]`; `["main"]` for the root.
type Module = Vec<String>;

fn command() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/src")
}

fn collect(folder: &Path, at: &[String], found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_stem().expect("a name").to_string_lossy().into_owned();
        if entry.is_dir() {
            collect(&entry, &[at, &[name]].concat(), found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let module = if name == "mod" { at.to_vec() } else { [at, &[name]].concat() };
            found.insert(module, fs::read_to_string(&entry).expect("a readable source"));
        }
    }
}

/// All modules with their sources, without comments and tests.
fn modules() -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    collect(&command(), &[], &mut found);
    assert!(found.len() > 50, "the sources were found");
    let test_files: Vec<Module> = found.iter().flat_map(|(module, text)| test_files(module, text)).collect();
    found.retain(|module, _| !test_files.contains(module));
    found.into_iter().map(|(module, text)| (module, without_tests(&text))).collect()
}

/// The modules of tests that are files of their own.
fn test_files(of: &Module, text: &str) -> Vec<Module> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.windows(2).filter(|pair| pair[0].trim() == "#[cfg(test)]");
    let names = pairs.filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'));
    names.map(|name| [of.as_slice(), &[name.to_string()]].concat()).collect()
}

/// The lines before a module of tests. A test module in a file of its own has only tests.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().copied().unwrap_or_default();
        match line.trim() {
            "#[cfg(test)]" if next.trim_start().starts_with("mod ") && next.ends_with(';') => drop(lines.next()),
            "#[cfg(test)]" if next.trim_start().starts_with("mod ") => break,
            _ => kept += &format!("{line}\n"),
        }
    }
    kept
}

/// The paths that a text names, each from `crate` or `super`: `use crate::a::{b, c::d};` names two.
fn paths(text: &str) -> Vec<Vec<String>> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    let words: Vec<&str> =
        code.split_inclusive(|character: char| !(character.is_alphanumeric() || "_:".contains(character))).collect();
    for (at, word) in words.iter().enumerate() {
        let path = word.trim_end_matches(|character: char| !(character.is_alphanumeric() || "_:".contains(character)));
        if !(path.starts_with("crate::") || path.starts_with("super::")) {
            continue;
        }
        let head: Vec<String> = path.split("::").filter(|part| !part.is_empty()).map(str::to_string).collect();
        match word.ends_with('{') {
            true => found.extend(group(&words[at + 1..]).into_iter().map(|tail| [head.clone(), tail].concat())),
            false => found.push(head),
        }
    }
    found
}

/// The paths between braces, of which the first is open.
fn group(words: &[&str]) -> Vec<Vec<String>> {
    let mut heads: Vec<Vec<String>> = vec![Vec::new()];
    let mut found = Vec::new();
    for word in words {
        let path = word.trim_end_matches(|character: char| !(character.is_alphanumeric() || "_:".contains(character)));
        let own = path.split("::").filter(|part| !part.is_empty()).map(str::to_string);
        let whole: Vec<String> = heads.last().into_iter().flatten().cloned().chain(own).collect();
        if word.ends_with('{') {
            heads.push(whole);
            continue;
        }
        if !path.is_empty() {
            found.push(whole);
        }
        if word.ends_with('}') {
            heads.pop();
            if heads.is_empty() {
                break;
            }
        }
    }
    found
}

/// The module that a path leads to: the longest part of it that is a file.
fn target(modules: &BTreeMap<Module, String>, from: &Module, path: &[String]) -> Option<Module> {
    let supers = path.iter().take_while(|part| *part == "super").count();
    let base = if supers > 0 { from.get(..from.len() - supers)?.to_vec() } else { Vec::new() };
    let rest: Vec<String> = path[supers.max(1)..].iter().filter(|part| *part != "self").cloned().collect();
    let whole = [base, rest].concat();
    let known = (1..=whole.len()).rev().map(|parts| whole[..parts].to_vec()).find(|part| modules.contains_key(part));
    known.or_else(|| (supers == 0).then(|| vec!["main".to_string()]))
}

/// Which modules each module uses. What a file uses of the module that it is a part of is no arrow: both are one module.
fn arrows() -> BTreeMap<Module, BTreeSet<Module>> {
    let modules = modules();
    let arrow = |(from, text): (&Module, &String)| {
        let used = paths(text).into_iter().filter_map(|path| target(&modules, from, &path));
        (from.clone(), used.filter(|to| to != from && !from.starts_with(to)).collect())
    };
    modules.iter().map(arrow).collect()
}

#[test]
fn the_command_is_thin() {
    let lines: usize = modules().values().map(|text| text.lines().count()).sum();
    assert!(
        lines <= COMMAND_LINES_MAX,
        "crates/cli/src has {lines} lines without tests, at most {COMMAND_LINES_MAX}: move what is not about flags, text \
         or files to the library that it belongs to"
    );
}

#[test]
fn no_file_of_the_command_uses_itself_in_a_circle() {
    let mut left = arrows();
    // Files that use no other file of those left are in no circle.
    while let Some(done) = left.iter().find(|(_, used)| used.is_empty()).map(|(module, _)| module.clone()) {
        left.remove(&done);
        left.values_mut().for_each(|used| {
            used.remove(&done);
        });
    }
    // What only leads to a circle is in none, either.
    while let Some(outer) = left.keys().find(|module| !left.values().any(|used| used.contains(*module))).cloned() {
        left.remove(&outer);
    }
    assert!(left.is_empty(), "a circle of files: {left:#?}");
}

#[test]
fn files_of_the_command_use_no_higher_layer() {
    let layer = |module: &Module| {
        let layer = LAYERS.iter().position(|layer| layer.contains(&module[0].as_str()));
        layer.unwrap_or_else(|| panic!("{}: in no layer; name it in LAYERS", module.join("::")))
    };
    for (from, used) in arrows() {
        for to in used {
            assert!(layer(&to) <= layer(&from), "{} uses {}, of a higher layer", from.join("::"), to.join("::"));
        }
    }
}

#[test]
fn paths_are_found_in_groups() {
    let text = "use crate::a::{self, b::{c, d}, e};\nfn f() { super::g::h(); crate::i(); } // crate::no\n";
    let found: Vec<String> = paths(text).iter().map(|path| path.join("::")).collect();
    let expected = ["crate::a::self", "crate::a::b::c", "crate::a::b::d", "crate::a::e", "super::g::h", "crate::i"];
    assert_eq!(found, expected);
}
