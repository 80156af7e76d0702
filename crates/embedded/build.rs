//! Builds the shared objects with a separate cargo process, so that the library can embed them.
//!
//! The objects need a separate profile (`panic=abort`; the recorder has no std), and must not inherit flags or wrappers
//! meant for the rest of the workspace. The flags `--locked --offline` are possible because the outer cargo has already
//! resolved and fetched everything.
//!
//! Under clippy, which reads the crates and links none, empty files stand for the objects: they take longer to build than
//! the whole crate takes to check. cargo keeps what it builds with clippy apart from other builds.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The objects' target. It is always glibc, whatever hksim is built for, because the recorded programs use glibc.
const OBJECT_TARGET: &str = "x86_64-unknown-linux-gnu";

/// A shared object: its sources, and the variable that names its file.
struct Object {
    /// The environment variable that names the file when the library is compiled.
    variable: &'static str,
    /// The crate's directory.
    krate: &'static str,
    features: &'static str,
    /// The file that cargo builds.
    file: &'static str,
    /// The object's name in `OUT_DIR`: two of them have the same file.
    name: &'static str,
}

const OBJECTS: [Object; 3] = [
    Object {
        variable: "HKSIM_RECORDER_OBJECT",
        krate: "record-preload",
        features: "",
        file: "libhksim_record_preload.so",
        name: "recorder.so",
    },
    Object {
        variable: "HKSIM_RECORDER_OPERATORS_OBJECT",
        krate: "record-preload",
        features: "operators",
        file: "libhksim_record_preload.so",
        name: "recorder-operators.so",
    },
    Object {
        variable: "HKSIM_ALLOCATOR_OBJECT",
        krate: "native-ffi",
        features: "",
        file: "libhksim_native_ffi.so",
        name: "allocator.so",
    },
];

/// Crates whose sources are part of the objects.
const SOURCES: [&str; 5] = ["record-preload", "linux-probe", "native-ffi", "native", "policy"];

/// Variables through which the outer build would affect the nested one.
const NOT_INHERITED: [&str; 10] = [
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MAKEFLAGS",
    "CARGO_TARGET_DIR",
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "__CARGO_DEFAULT_LIB_METADATA",
];

/// The nested build's profile, as cargo's environment variables.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ("CARGO_PROFILE_RELEASE_LTO", "true"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_STRIP", "true"),
];

fn main() {
    let crates = path_variable("CARGO_MANIFEST_DIR").join("..");
    for krate in SOURCES.map(|krate| crates.join(krate)) {
        let sources = ["src", "Cargo.toml", "build.rs"].map(|file| krate.join(file));
        // cargo takes a file that does not exist for changed, each time.
        for source in sources.iter().filter(|source| source.exists()) {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    println!("cargo::rerun-if-changed={}", crates.join("../Cargo.lock").display());
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    // One target directory, because the objects share dependencies.
    let target_dir = path_variable("OUT_DIR").join("objects");
    for object in OBJECTS {
        let file = path_variable("OUT_DIR").join(object.name);
        if is_read_by_clippy() {
            fs::write(&file, []).unwrap_or_else(|why| panic!("cannot write {}: {why}", file.display()));
        } else {
            build(&crates.join(object.krate).join("Cargo.toml"), &target_dir, object.features);
            let built = target_dir.join(OBJECT_TARGET).join("release").join(object.file);
            fs::copy(&built, &file).unwrap_or_else(|why| panic!("cannot copy {}: {why}", built.display()));
        }
        println!("cargo::rustc-env={}={}", object.variable, file.display());
    }
}

fn is_read_by_clippy() -> bool {
    env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(|wrapper| Path::new(&wrapper).ends_with("clippy-driver"))
}

fn path_variable(name: &str) -> PathBuf {
    PathBuf::from(env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name} for build scripts")))
}

fn build(manifest: &Path, target_dir: &Path, features: &str) {
    let mut cargo = Command::new(path_variable("CARGO"));
    cargo.args(["build", "--release", "--locked", "--offline", "--lib", "--target", OBJECT_TARGET]);
    cargo.args(["--features", features]);
    cargo.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(target_dir);
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    cargo.envs(PROFILE);
    let status = cargo.status().unwrap_or_else(|why| panic!("cannot run cargo for a shared object: {why}"));
    assert!(status.success(), "a shared object does not build ({status}); see its messages above");
}
