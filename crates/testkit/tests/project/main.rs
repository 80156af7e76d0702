//! Rules for the sources, dependencies, manuals and releases of the project.

mod architecture;
mod build_scripts;
mod command_files;
mod dependencies;
mod design_names;
mod documents;
mod modes;
mod release;

use std::path::{Path, PathBuf};

/// The folder of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository's root")
}
