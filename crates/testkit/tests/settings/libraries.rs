//! The libraries to play: those installed, mimalloc 2 and 3 from the sources of a crate, and those that the environment
//! names.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use hksim_replay::Target;
use hksim_replay::compare::{Found, lookup};
use hksim_replay::library::{Library, c_library, library};
use hksim_testkit::compile;

/// An allocator of one version.
pub struct Subject {
    /// The library to preload; `None` for the C library.
    pub path: Option<PathBuf>,
    /// Its version.
    pub version: String,
    allocator: &'static str,
}

impl Subject {
    fn of(path: Option<PathBuf>, library: Library) -> Subject {
        Subject { path, version: library.version, allocator: library.allocator }
    }

    /// Allocator and version.
    pub fn name(&self) -> String {
        format!("{} {}", self.allocator, self.version)
    }
}

/// All libraries of an allocator. `folder` is for those that are compiled.
pub fn of(allocator: &str, folder: &Path) -> Vec<Subject> {
    let mut paths: Vec<PathBuf> = named_by_the_environment();
    match lookup(allocator, "").expect("a known allocator") {
        Found::Here(Target::Malloc { preload: None, .. }) => {
            return c_library().map(|library| Subject::of(None, library)).into_iter().collect();
        }
        Found::Here(Target::Malloc { preload: Some(path), .. }) => paths.push(path),
        Found::Here(_) | Found::Missing(_) => {}
    }
    if allocator == "mimalloc" {
        paths.extend(["v2", "v3"].iter().filter_map(|series| compiled_mimalloc(series, folder)));
    }
    let subject = |path: PathBuf| library(&path).map(|library| Subject::of(Some(path), library));
    paths.into_iter().filter_map(subject).filter(|subject| subject.allocator == allocator).collect()
}

fn named_by_the_environment() -> Vec<PathBuf> {
    std::env::var_os("HKSIM_ALLOCATORS").map_or(Vec::new(), |paths| std::env::split_paths(&paths).collect())
}

/// mimalloc's newest release of a series: the sources in `libmimalloc-sys`, which benchmarks of the workspace use.
fn compiled_mimalloc(series: &str, folder: &Path) -> Option<PathBuf> {
    let sources = mimalloc_sources().or_else(|| {
        println!("skipped: mimalloc {series}: cargo does not find the sources of libmimalloc-sys");
        None
    })?;
    let (sources, target) = (sources.join(series), folder.join(format!("libmimalloc-{series}.so")));
    let include = format!("-I{}", sources.join("include").display());
    let library = ["-O2", "-fPIC", "-shared", "-ftls-model=initial-exec", "-DNDEBUG", "-lpthread", "-latomic"];
    let exported = ["-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", &include];
    compile(sources.join("src/static.c"), &target, &[&library[..], &exported].concat())?;
    Some(target)
}

/// The folder with the sources of each series. Two runs of cargo at a time would wait for each other.
fn mimalloc_sources() -> Option<PathBuf> {
    static CARGO: Mutex<()> = Mutex::new(());
    let _alone = CARGO.lock().expect("no test panics with the lock");
    // Of other platforms, not all crates are there.
    let platform = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let arguments = ["metadata", "--format-version", "1", "--offline", "--locked"];
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output =
        Command::new(env!("CARGO")).args(arguments).args(platform).args(["--manifest-path", manifest]).output().ok()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let crates = metadata["packages"].as_array()?;
    let found = crates.iter().find(|package| package["name"] == "libmimalloc-sys")?;
    Some(Path::new(found["manifest_path"].as_str()?).parent()?.join("c_src/mimalloc"))
}

/// The versions that the test sees are those of the packages, read by another program.
#[test]
fn versions_are_those_of_the_packages() {
    let packages =
        [("libjemalloc2", "jemalloc"), ("libtcmalloc-minimal4", "gperftools"), ("libmimalloc2.0", "mimalloc")];
    for (package, allocator) in packages.into_iter().chain([("libc6", "glibc")]) {
        let query = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
        let Some(output) = query.ok().filter(|output| output.status.success()) else {
            println!("skipped: dpkg does not know {package}");
            continue;
        };
        let packaged = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = hksim_replay::library::installed(allocator).expect("the version of an installed library");
        assert_eq!(found.allocator, allocator);
        assert!(packaged.starts_with(&found.version), "{package} {packaged}: {found:?}");
    }
}
