//! The rules of docs/how-to/release.md: versions, changelog, tags, packages, examples and READMEs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::root;
use toml::{Table, Value};

/// Crates that are not libraries for other programs: shared objects, the command, helpers of tests.
const NO_LIBRARIES: [&str; 4] = ["cli", "native-ffi", "record-preload", "testkit"];

fn read(file: impl AsRef<Path>) -> String {
    let path = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn manifest(file: impl AsRef<Path>) -> Table {
    read(file.as_ref()).parse().unwrap_or_else(|why| panic!("{}: {why}", file.as_ref().display()))
}

/// The folders of all crates.
fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).expect("the crates").flatten();
    let mut names: Vec<String> = folders
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().into_string().expect("a plain name"))
        .collect();
    names.sort();
    assert!(names.len() > 15, "{names:?}");
    names
}

fn workspace() -> Table {
    manifest("Cargo.toml")["workspace"].as_table().expect("a table").clone()
}

fn version() -> String {
    workspace()["package"]["version"].as_str().expect("a version").to_string()
}

/// The versions of the changelog with their dates, newest first.
fn changelog() -> Vec<(String, String)> {
    let text = read("CHANGELOG.md");
    let headings = text.lines().filter_map(|line| line.strip_prefix("## ["));
    headings
        .map(|heading| {
            let (version, date) = heading.split_once("] - ").unwrap_or_else(|| panic!("## [{heading}: no date"));
            (version.to_string(), date.to_string())
        })
        .collect()
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([4, 2, 2]) && parts.concat().bytes().all(|byte| byte.is_ascii_digit())
}

/// Step 1.
#[test]
fn all_crates_have_the_version_of_the_workspace() {
    let version = version();
    let is_it = |dependency: &Value| dependency.get("version").is_none_or(|found| found.as_str() == Some(&version));
    let dependencies = workspace()["dependencies"].as_table().expect("a table").clone();
    let ours = dependencies.iter().filter(|(name, _)| name.starts_with("hksim-"));
    let others: Vec<_> = ours.filter(|(_, dependency)| !is_it(dependency)).map(|(name, _)| name).collect();
    assert!(others.is_empty(), "[workspace.dependencies]: {others:?} have another version than {version}");
    for krate in crates() {
        let manifest = manifest(format!("crates/{krate}/Cargo.toml"));
        let inherits = manifest["package"]["version"].get("workspace").and_then(Value::as_bool);
        assert_eq!(inherits, Some(true), "crates/{krate}: `version.workspace = true` is missing");
        let dependencies = manifest.get("dependencies").and_then(Value::as_table).cloned().unwrap_or_default();
        let paths = dependencies.iter().filter(|(_, dependency)| dependency.get("path").is_some());
        for (name, dependency) in paths {
            assert!(is_it(dependency), "crates/{krate}: {name} has another version than {version}");
        }
    }
}

/// Steps 2 and 6.
#[test]
fn the_changelog_has_the_version_and_every_tag() {
    let (version, changelog) = (version(), changelog());
    let (newest, date) = changelog.first().expect("a version");
    assert_eq!(*newest, version, "CHANGELOG.md: the first heading is not the workspace's version");
    assert!(date == "unreleased" || is_date(date), "CHANGELOG.md: [{newest}] - {date}");
    let undated: Vec<_> = changelog[1..].iter().filter(|(_, date)| !is_date(date)).collect();
    assert!(undated.is_empty(), "CHANGELOG.md: {undated:?} have no date");
    let Ok(ran) = Command::new("git").arg("-C").arg(root()).args(["tag", "--list"]).output() else {
        return println!("skipped: tags: there is no git");
    };
    let dates: BTreeMap<String, String> = changelog.into_iter().collect();
    for tag in String::from_utf8_lossy(&ran.stdout).lines() {
        let tagged = tag.strip_prefix('v').unwrap_or_else(|| panic!("tag {tag}: expected v and the version"));
        let date = dates.get(tagged).unwrap_or_else(|| panic!("tag {tag}: not in CHANGELOG.md"));
        assert!(is_date(date), "tag {tag}: CHANGELOG.md has no date");
    }
}

/// The steps of the page, without what follows.
fn steps() -> String {
    let page = read("docs/how-to/release.md");
    let begin = page.find("\n1. ").expect("step 1");
    page[begin..].split("\n\nThe packages").next().expect("the steps").to_string()
}

/// Whatever the steps name is there: tests, scripts, files. The versions in them are those of now.
#[test]
fn the_steps_can_be_taken() {
    let (steps, version) = (steps(), version());
    assert!(steps.contains(&format!("git tag -a v{version} -m")), "step 6: the tag of {version}");
    assert!(steps.contains(&format!("## [{version}] - ")), "step 2: the heading of {version}");
    let code: Vec<&str> = steps.split('`').skip(1).step_by(2).collect();
    let mut named = 0;
    for span in code {
        let words: Vec<&str> = span.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == "--test") {
            let krate = words[at - 1].strip_prefix("hksim").expect("the package").trim_start_matches('-');
            let folder = root().join("crates").join(if krate.is_empty() { "cli" } else { krate }).join("tests");
            assert!(folder.join(format!("{}.rs", words[at + 1])).exists(), "{span}");
            named += 1;
        } else if let Some(script) = words.first().filter(|word| {
            word.ends_with(".sh") || word.ends_with(".rs") || word.ends_with(".toml") || word.ends_with(".md")
        }) {
            assert!(root().join(script).exists(), "{span}");
            named += 1;
        }
    }
    assert!(named >= 6, "only {named} were checked");
}

/// Steps 7 and 8: what the page publishes is what is packaged and used from outside, after its dependencies.
#[test]
fn published_packages_are_checked_from_outside_in_order() {
    let page = read("docs/how-to/release.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix("` |"));
    let published: Vec<&str> = rows.collect();
    let script = read("tools/outside-programs/check.sh");
    let (list, _) = script.split_once("crates=(").and_then(|(_, list)| list.split_once(')')).expect("the crates");
    assert_eq!(published, list.split_whitespace().collect::<Vec<_>>(), "release.md and check.sh list other packages");
    let mut before = BTreeSet::new();
    for name in published {
        let krate = name.strip_prefix("hksim-").expect("one of ours");
        let manifest = manifest(format!("crates/{krate}/Cargo.toml"));
        assert!(manifest["package"].get("description").is_some(), "{name}: no description");
        let dependencies = manifest.get("dependencies").and_then(Value::as_table).cloned().unwrap_or_default();
        let ours = dependencies.keys().filter(|dependency| dependency.starts_with("hksim-"));
        let missing: Vec<_> = ours.filter(|dependency| !before.contains(dependency.as_str())).collect();
        assert!(missing.is_empty(), "{name} is published before {missing:?}");
        before.insert(name);
    }
}

/// A reader of a crate's page finds a program to start from.
#[test]
fn every_library_crate_has_an_example() {
    let has_example = |krate: &String| {
        let folder = root().join("crates").join(krate);
        let programs = fs::read_dir(folder.join("examples")).is_ok_and(|mut files| files.next().is_some());
        programs || read(format!("crates/{krate}/src/lib.rs")).lines().any(|line| line.starts_with("//! ```"))
    };
    let libraries = crates().into_iter().filter(|krate| !NO_LIBRARIES.contains(&krate.as_str()));
    let without: Vec<String> = libraries.filter(|krate| !has_example(krate)).collect();
    assert!(without.is_empty(), "{without:?} have neither examples/ nor code in the crate's page");
}

/// cargo puts all examples of a workspace into one folder, by name.
#[test]
fn no_two_examples_have_one_name() {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for krate in crates() {
        let programs =
            fs::read_dir(root().join("crates").join(&krate).join("examples")).into_iter().flatten().flatten();
        for program in programs {
            let name = program.path().file_stem().expect("a name").to_string_lossy().into_owned();
            names.entry(name).or_default().push(krate.clone());
        }
    }
    assert!(names.len() > 10, "{names:?}");
    names.retain(|_, crates| crates.len() > 1);
    assert!(names.is_empty(), "examples of one name: {names:?}");
}

/// A package's README is read where the repository's files are not, and before any package is on a registry.
#[test]
fn readmes_link_to_no_registry_and_manifests_name_them() {
    for krate in crates() {
        let path = format!("crates/{krate}/README.md");
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for page in ["crates.io/", "docs.rs/", "lib.rs/"] {
            assert!(!text.contains(&format!("https://{page}")), "{path} links to {page}");
        }
        assert!(!text.contains("](../"), "{path} links to a file outside the package");
        let manifest = manifest(format!("crates/{krate}/Cargo.toml"));
        assert_eq!(manifest["package"].get("readme").and_then(Value::as_str), Some("README.md"), "crates/{krate}");
    }
}
