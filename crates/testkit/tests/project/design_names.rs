//! No crate but `designs` names a design, so that another one needs no line elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// The crates through which a command reaches designs.
const CRATES: [&str; 8] = ["engine", "sim", "replay", "explore", "validate", "results", "reports", "cli"];

/// The files of the crate that are no designs.
const OTHERS: [&str; 5] = ["lib", "listed", "settings", "untyped", "words"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The modules of the designs: each a file or a folder.
fn modules() -> Vec<String> {
    let entries = fs::read_dir(root().join("crates/designs/src")).expect("the crate's sources");
    let names = entries.map(|entry| entry.expect("an entry").path().file_stem().expect("a name").to_owned());
    let names = names.map(|name| name.into_string().expect("a plain name"));
    names.filter(|name| !OTHERS.contains(&name.as_str())).collect()
}

/// The name of a design's type: `page_heap` is `PageHeap`.
fn type_name(module: &str) -> String {
    let words = module.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
    words.collect()
}

fn names_a_design(text: &str, modules: &[String]) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let words: Vec<&str> = text.split(|character| !is_word(character)).collect();
    modules
        .iter()
        .any(|module| words.contains(&type_name(module).as_str()) || text.contains(&format!("hksim_designs::{module}")))
}

#[test]
fn no_other_crate_names_a_design() {
    let modules = modules();
    assert!(modules.len() >= 2 && modules.contains(&"page_heap".to_string()), "{modules:?}");
    let mut files = Vec::new();
    CRATES.iter().for_each(|name| sources(&root().join("crates").join(name).join("src"), &mut files));
    assert!(files.len() > 200, "the sources were found");
    let text = |path: &PathBuf| fs::read_to_string(path).expect("a readable source");
    let naming: Vec<&PathBuf> = files.iter().filter(|path| names_a_design(&text(path), &modules)).collect();
    assert!(naming.is_empty(), "a design is named outside its crate: {naming:?}");
}

#[test]
fn names_of_designs_are_found() {
    let modules = ["bump".to_string(), "page_heap".to_string()];
    assert!(names_a_design("let heap: PageHeap<'a>;", &modules));
    assert!(names_a_design("use hksim_designs::bump::{self};", &modules));
    assert!(!names_a_design("--carve bump: Bumper, MyPageHeap", &modules));
}
