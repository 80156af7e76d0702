//! The version that results state, with the commit of the sources.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Bench;

#[path = "../../build.rs"]
#[allow(dead_code)] // its `main` is for cargo
mod build_script;

use build_script::commit_of;

fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=n", "-c", "user.email=e@example.org"]).args(arguments);
    let ran = git.output().expect("git");
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim().to_string()
}

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

#[test]
fn the_commit_is_that_of_the_sources_that_are_built() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let package = root.join("crates/app");
    for file in ["Cargo.toml", "Cargo.lock", "README.md", "crates/app/Cargo.toml", "crates/app/src/main.rs"] {
        write(root, file, "1");
    }
    let here = || commit_of(&package, root);
    assert_eq!(here(), "no-commit", "not a repository");
    write(
        root,
        "crates/app/.cargo_vcs_info.json",
        "{\"git\": {\"sha1\": \"0123456789abcdef\"}, \"path_in_vcs\": \"\"}",
    );
    assert_eq!(here(), "0123456789ab", "a package");
    fs::remove_file(package.join(".cargo_vcs_info.json")).expect("the note");

    git(root, &["init", "--quiet"]);
    git(root, &["add", "-A"]);
    git(root, &["commit", "--quiet", "-m", "1"]);
    let head = git(root, &["rev-parse", "--short=12", "HEAD"]);
    assert_eq!(here(), head);
    for file in ["README.md", "crates/app/tests/new.rs", "crates/testkit/src/lib.rs", "notes/new.md"] {
        write(root, file, "2");
        assert_eq!(here(), head, "{file} is not built");
    }
    let mut seen = vec![head.clone()];
    for (file, text) in [
        ("crates/app/src/main.rs", "2"),
        ("crates/app/src/main.rs", "3"),
        ("crates/app/src/new.rs", ""),
        ("crates/app/build.rs", "2"),
        ("Cargo.lock", "2"),
    ] {
        write(root, file, text);
        let changed = here();
        assert!(changed.starts_with(&format!("{head}.dirty.")), "{file}: {changed}");
        assert!(!seen.contains(&changed), "{file}: {changed} is that of other changes");
        seen.push(changed);
    }
    git(root, &["add", "-A"]);
    git(root, &["commit", "--quiet", "-m", "2"]);
    assert!(!seen.contains(&here()) && !here().contains("dirty"), "{}", here());

    // An archive that was unpacked within another repository.
    let unpacked = root.join("target/package/app");
    write(root, "target/package/app/Cargo.toml", "1");
    assert_eq!(commit_of(&unpacked, &unpacked.join("../..")), "no-commit");
}

#[test]
fn results_state_the_commit_that_was_built() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bench = Bench::with_trace();
    let version = bench.ok("--version").trim().strip_prefix("hksim ").expect("a version").to_string();
    assert_eq!(bench.json("sim rm.hkt")["hksim_version"], version.as_str());
    let csv = bench.ok("sim rm.hkt --format csv");
    assert!(csv.contains(&version), "{csv}");
    if option_env!("HKSIM_COMMIT").is_none() {
        let commit = commit_of(package, &package.join("../.."));
        let committed = format!("{}+{}", env!("CARGO_PKG_VERSION"), commit.split('.').next().unwrap_or_default());
        assert!(version.starts_with(&committed), "{version} was not built again after the commit of {committed}");
    }
}

#[test]
fn results_of_another_commit_are_not_continued() {
    let bench = Bench::with_trace();
    let [one, two] = [1, 2].map(|number| bench.json(&format!("sweep rm.hkt --huge never,thp --shard {number}/2")));
    fs::write(bench.path("1.json"), one.to_string()).expect("a shard");
    for (place, pointer) in [("the file", "/hksim_version"), ("a row", "/rows/0/hksim_version")] {
        let mut other = two.clone();
        let version = other.pointer_mut(pointer).expect("a version");
        *version = format!("{}+0123456789ab", env!("CARGO_PKG_VERSION")).into();
        fs::write(bench.path("2.json"), other.to_string()).expect("a shard");
        let why = bench.refused("merge 1.json 2.json");
        assert!(why.contains("0123456789ab"), "{place}: {why}");
    }
    fs::write(bench.path("2.json"), two.to_string()).expect("a shard");
    bench.ok("merge 1.json 2.json");
}
