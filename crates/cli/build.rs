//! Sets `HKSIM_VERSION`, the version that results state: `0.2.0+COMMIT`.
//!
//! COMMIT names the sources of the program: the first 12 digits of the commit, followed by `.dirty.` and a digest of
//! the changes if they differ from it. Outside a git repository it is the commit that cargo noted in the package, or
//! `no-commit`. `HKSIM_COMMIT` replaces it, for builds from other archives.
//!
//! Only this crate is built again after a commit. A change of tests or documents changes no version.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Hexadecimal digits of a commit.
const COMMIT_DIGITS: usize = 12;
/// Hexadecimal digits of the digest of changes.
const CHANGES_DIGITS: usize = 8;
/// The crate that is not part of the program.
const NOT_BUILT: &str = "testkit";
/// What stands for the commit if nothing names it.
const NO_COMMIT: &str = "no-commit";

fn main() {
    println!("cargo::rerun-if-env-changed=HKSIM_COMMIT");
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let root = package.join("../..");
    let commit = match env::var("HKSIM_COMMIT") {
        Ok(given) => {
            assert!(is_build_metadata(&given), "HKSIM_COMMIT={given}: expected letters, digits, `.` and `-`");
            given
        }
        Err(_) => {
            watched(&root).iter().for_each(|path| println!("cargo::rerun-if-changed={}", path.display()));
            commit_of(&package, &root)
        }
    };
    println!("cargo::rustc-env=HKSIM_VERSION={}+{commit}", variable("CARGO_PKG_VERSION"));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|why| panic!("{name}, which cargo sets: {why}"))
}

/// Whether a text can follow the `+` of a semantic version.
fn is_build_metadata(text: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    text.split('.').all(is_part)
}

/// The commit of the sources of `package`, a crate of the workspace at `root`.
pub fn commit_of(package: &Path, root: &Path) -> String {
    let of_git = if is_repository(root) { of_git(root) } else { None };
    of_git.or_else(|| noted_in(package)).unwrap_or_else(|| NO_COMMIT.to_string())
}

/// Whether the workspace is a repository of its own, not an archive unpacked within another one.
fn is_repository(root: &Path) -> bool {
    let top = git(root, &["rev-parse", "--show-toplevel"]).map(PathBuf::from);
    top.is_some_and(|top| matches!((top.canonicalize(), root.canonicalize()), (Ok(top), Ok(root)) if top == root))
}

fn of_git(root: &Path) -> Option<String> {
    let commit = git(root, &["rev-parse", "HEAD"])?.get(..COMMIT_DIGITS)?.to_string();
    let mut changed = names(root, &["diff", "--name-only", "-z", "HEAD", "--"])?;
    changed.extend(names(root, &["ls-files", "--others", "--exclude-standard", "-z", "--"])?);
    if changed.is_empty() {
        return Some(commit);
    }
    changed.sort();
    let mut contents = Vec::new();
    for name in changed {
        contents.extend(name.as_bytes());
        contents.push(0);
        // A removed file has its name only.
        contents.extend(fs::read(root.join(&name)).unwrap_or_default());
        contents.push(0);
    }
    Some(format!("{commit}.dirty.{}", digest(root, &contents)?))
}

/// The commit in the note that `cargo package` adds: the package's own, as no other file of it has this name.
fn noted_in(package: &Path) -> Option<String> {
    let note = fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let (_, after) = note.split_once("\"sha1\"")?;
    let commit = after.split('"').nth(1)?.get(..COMMIT_DIGITS).filter(|commit| is_build_metadata(commit))?;
    let dirty = if note.contains("\"dirty\": true") { ".dirty" } else { "" };
    Some(format!("{commit}{dirty}"))
}

/// Runs a git command whose output is file names among the sources, each ended by a zero byte.
fn names(root: &Path, command: &[&str]) -> Option<Vec<String>> {
    let exclude = format!(":(exclude)crates/{NOT_BUILT}");
    let sources = [
        "Cargo.toml",
        "Cargo.lock",
        ":(glob)crates/*/Cargo.toml",
        ":(glob)crates/*/build.rs",
        ":(glob)crates/*/src/**",
        &exclude,
    ];
    let output = git(root, &[command, &sources].concat())?;
    Some(output.split('\0').filter(|name| !name.is_empty()).map(str::to_string).collect())
}

/// The output of a git command, without the line end; `None` if it fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git").arg("-C").arg(root).args(arguments).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(ran.stdout).ok().filter(|_| ran.status.success())?;
    Some(text.trim_end_matches('\n').to_string())
}

fn digest(root: &Path, contents: &[u8]) -> Option<String> {
    let mut hash = Command::new("git");
    hash.arg("-C").arg(root).args(["hash-object", "--stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = hash.spawn().ok()?;
    // Closed at the end of the statement: git reads to the end.
    child.stdin.take()?.write_all(contents).ok()?;
    let ran = child.wait_with_output().ok()?;
    String::from_utf8(ran.stdout).ok()?.get(..CHANGES_DIGITS).map(str::to_string)
}

/// The files and folders on which the version depends. Those that do not exist are left out: cargo would take them for
/// changed in every build.
fn watched(root: &Path) -> Vec<PathBuf> {
    let mut paths = vec![root.join("Cargo.toml"), root.join("Cargo.lock")];
    for krate in fs::read_dir(root.join("crates")).into_iter().flatten().flatten() {
        if krate.file_name() != NOT_BUILT {
            paths.extend(["Cargo.toml", "build.rs", "src"].map(|name| krate.path().join(name)));
        }
    }
    // HEAD changes when another branch is checked out, its log with every commit.
    for name in ["HEAD", "logs/HEAD", "packed-refs"] {
        paths.extend(git(root, &["rev-parse", "--git-path", name]).map(|path| root.join(path)));
    }
    if let Some(branch) = git(root, &["symbolic-ref", "--quiet", "HEAD"]) {
        paths.extend(git(root, &["rev-parse", "--git-path", &branch]).map(|path| root.join(path)));
    }
    paths.retain(|path| path.exists());
    paths
}
