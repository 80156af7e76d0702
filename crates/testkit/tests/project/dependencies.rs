//! Rules for dependencies: licences, sources, duplicate versions, Rust versions. The checks use `cargo metadata` and
//! are independent of cargo-deny.

use crate::root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use toml::Table;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

const LINUX: &str = "x86_64-unknown-linux-gnu";

fn toml(file: &str) -> Table {
    let text = fs::read_to_string(root().join(file)).unwrap_or_else(|why| panic!("{file}: {why}"));
    text.parse().unwrap_or_else(|why| panic!("{file}: {why}"))
}

fn cargo(arguments: &[&str]) -> Vec<u8> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--locked", "--offline"]).current_dir(root());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Every package of the build for Linux on x86-64, including our own.
fn packages() -> Vec<Value> {
    // `metadata` combines the features of all platforms, so it lists packages that are never built. `tree` does not.
    let tree =
        cargo(&["tree", "--workspace", "--all-features", "--target", LINUX, "--prefix", "none", "--format", "{p}"]);
    let tree = String::from_utf8(tree).expect("UTF-8");
    let two_words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let built: BTreeSet<String> = tree.lines().filter(|line| !line.is_empty()).map(two_words).collect();
    let metadata = cargo(&["metadata", "--all-features", "--format-version", "1", "--filter-platform", LINUX]);
    let metadata: Value = serde_json::from_slice(&metadata).expect("JSON");
    let is_built =
        |package: &&Value| built.contains(&format!("{} v{}", text(package, "name"), text(package, "version")));
    let packages: Vec<Value> =
        metadata["packages"].as_array().expect("a list").iter().filter(is_built).cloned().collect();
    assert_eq!(packages.len(), built.len(), "metadata and tree agree");
    assert!(packages.len() > 100, "{} packages", packages.len());
    packages
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or("none")
}

fn is_ours(package: &Value) -> bool {
    package["source"].is_null()
}

/// Whether the licences in `allowed` satisfy an SPDX expression. AND binds more tightly than OR; old manifests write
/// `/` for OR.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    either(&mut words, allowed) == Some(true) && words.is_empty()
}

/// `None` if the text is not an expression.
fn either(words: &mut Vec<&str>, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut met = both(words, allowed)?;
    while words.last() == Some(&"OR") {
        words.pop();
        met |= both(words, allowed)?;
    }
    Some(met)
}

fn both(words: &mut Vec<&str>, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut met = one(words, allowed)?;
    while words.last() == Some(&"AND") {
        words.pop();
        met &= one(words, allowed)?;
    }
    Some(met)
}

fn one(words: &mut Vec<&str>, allowed: &BTreeSet<String>) -> Option<bool> {
    let word = words.pop()?;
    if word == "(" {
        let met = either(words, allowed)?;
        return (words.pop() == Some(")")).then_some(met);
    }
    let mut licence = word.to_string();
    if words.last() == Some(&"WITH") {
        words.pop();
        licence = format!("{licence} WITH {}", words.pop()?);
    }
    Some(allowed.contains(&licence))
}

/// The parts of a version. Missing parts are 0, so that `1.88` equals `1.88.0`.
fn version(text: &str) -> Vec<u32> {
    let mut parts: Vec<u32> = text.split('.').map(|part| part.parse().expect("a number")).collect();
    parts.resize(3, 0);
    parts
}

#[test]
fn spdx_expressions_are_evaluated_correctly() {
    let allowed: BTreeSet<String> = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(String::from).into();
    for met in
        ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-3.0) AND Zlib", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(is_met(met, &allowed), "{met}");
    }
    for unmet in
        ["GPL-3.0", "Apache-2.0", "MIT AND GPL-3.0", "(MIT OR Zlib) AND GPL-3.0", "MIT OR", "(MIT", "MIT Zlib", ""]
    {
        assert!(!is_met(unmet, &allowed), "{unmet}");
    }
}

#[test]
fn every_licence_is_allowed() {
    let deny = toml("deny.toml");
    let listed = deny["licenses"]["allow"].as_array().expect("a list");
    let allowed: BTreeSet<String> = listed.iter().map(|licence| licence.as_str().expect("a name").into()).collect();
    for strong in ["GPL", "MPL", "EPL", "CDDL", "SSPL", "BUSL"] {
        assert!(!allowed.iter().any(|licence| licence.contains(strong)), "{strong} is not a permissive licence");
    }
    for package in packages() {
        let (name, licence) = (text(&package, "name"), text(&package, "license"));
        assert!(is_met(licence, &allowed), "{name} {}: licence {licence}", text(&package, "version"));
    }
}

#[test]
fn every_dependency_comes_from_crates_io() {
    for package in packages().iter().filter(|package| !is_ours(package)) {
        assert_eq!(text(package, "source"), CRATES_IO, "{}", text(package, "name"));
    }
}

#[test]
fn duplicate_versions_are_listed_in_deny_toml() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(text(&package, "name").into()).or_default().insert(text(&package, "version").into());
    }
    let duplicates: BTreeSet<String> =
        versions.into_iter().filter(|(_, found)| found.len() > 1).map(|(name, _)| name).collect();
    let deny = toml("deny.toml");
    let skip = deny["bans"]["skip"].as_array().expect("a list").iter();
    let stated = skip.map(|entry| entry["crate"].as_str().expect("a crate").split('@').next().unwrap().to_string());
    assert_eq!(duplicates, stated.collect(), "duplicates found, and those that deny.toml lists");
}

#[test]
fn no_dependency_needs_a_newer_rust() {
    let manifest = toml("Cargo.toml");
    let ours = manifest["workspace"]["package"]["rust-version"].as_str().expect("a version").to_string();
    let mut stated = 0;
    for package in packages() {
        let Some(needed) = package["rust_version"].as_str() else { continue };
        stated += 1;
        assert!(version(needed) <= version(&ours), "{} needs Rust {needed}, not {ours}", text(&package, "name"));
        assert!(!is_ours(&package) || needed == ours, "{}: rust-version {needed}", text(&package, "name"));
    }
    assert!(stated > 50, "{stated} packages state a version");
}

#[test]
fn our_crates_have_one_version_and_the_changelog_has_it() {
    let manifest = toml("Cargo.toml");
    let ours = manifest["workspace"]["package"]["version"].as_str().expect("a version").to_string();
    for package in packages().iter().filter(|package| is_ours(package)) {
        assert_eq!(text(package, "version"), ours, "{}", text(package, "name"));
    }
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("CHANGELOG.md");
    assert!(changelog.contains(&format!("\n## [{ours}] - ")), "CHANGELOG.md has no entry for {ours}");
}

/// Otherwise the test command builds them twice.
#[test]
fn the_wheel_is_built_from_the_crates_that_the_tests_build() {
    let crates = |of: &[&str]| -> BTreeSet<String> {
        let tree = [&["tree", "--target", LINUX, "--prefix", "none", "--format", "{p} {f}"], of].concat();
        let tree = String::from_utf8(cargo(&tree)).expect("UTF-8");
        tree.lines().map(|line| line.trim_end_matches(" (*)").to_string()).collect()
    };
    let wheel = crates(&["-p", "hksim", "--edges", "normal,build"]);
    let tests = crates(&["--workspace", "--edges", "all"]);
    let others: Vec<&String> = wheel.difference(&tests).collect();
    assert!(wheel.len() > 50 && others.is_empty(), "with other features than in the tests: {others:?}");
}
