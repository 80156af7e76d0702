//! Builds the preloaded object with a cargo of its own, so that the library can carry it inside.
//!
//! It needs its own profile (`panic=abort`, no std) and must not inherit flags or wrappers meant for the rest of the
//! workspace. `--locked --offline`: the outer cargo has already resolved and fetched everything.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Always glibc, whatever hksim itself is built for: that is what recorded programs load.
const PRELOAD_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Both forms of the object: the variable that names it, its folder, its features.
const VARIANTS: [(&str, &str, &str); 2] =
    [("HKSIM_PRELOAD_OBJECT", "preload", ""), ("HKSIM_PRELOAD_OBJECT_OPERATORS", "preload-operators", "operators")];

/// Variables through which the outer build would reach into the nested one.
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

/// The profile, as cargo reads it from the environment.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ("CARGO_PROFILE_RELEASE_LTO", "true"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_STRIP", "true"),
];

fn main() {
    let here = path_variable("CARGO_MANIFEST_DIR");
    let preload = here.join("../record-preload");
    for input in
        [preload.join("src"), preload.join("Cargo.toml"), here.join("../linux/src"), here.join("../../Cargo.lock")]
    {
        println!("cargo::rerun-if-changed={}", input.display());
    }
    for (variable, folder, features) in VARIANTS {
        let target_dir = path_variable("OUT_DIR").join(folder);
        build(&preload.join("Cargo.toml"), &target_dir, features);
        let object = target_dir.join(PRELOAD_TARGET).join("release/libhksim_record_preload.so");
        println!("cargo::rustc-env={variable}={}", object.display());
    }
}

fn path_variable(name: &str) -> PathBuf {
    PathBuf::from(env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name} for build scripts")))
}

fn build(manifest: &Path, target_dir: &Path, features: &str) {
    let mut cargo = Command::new(path_variable("CARGO"));
    cargo.args(["build", "--release", "--locked", "--offline", "--lib", "--target", PRELOAD_TARGET]);
    cargo.args(["--features", features]);
    cargo.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(target_dir);
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    cargo.envs(PROFILE);
    let status = cargo.status().unwrap_or_else(|why| panic!("cannot run cargo for the preloaded object: {why}"));
    assert!(status.success(), "the preloaded object does not build ({status}); its messages stand above");
}
