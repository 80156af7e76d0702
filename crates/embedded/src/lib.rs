//! The shared objects embedded in hksim, so that it is a single file to install.
//!
//! This crate's build script builds them, with a separate profile. A program loads an object from a file, so each
//! is unpacked where the dynamic linker can load it: for one recording ([`write_in`]), or once for all runs
//! ([`cached`]).
//!
//! ```no_run
//! use hksim_embedded::{ALLOCATOR, PRELOAD_VARIABLE, cached, preload_with};
//!
//! let object = cached("native", ALLOCATOR)?;
//! std::process::Command::new("ls").env(PRELOAD_VARIABLE, preload_with(&object)).status()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod place;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

pub use cache::{NoUsableDirectory, cached};
pub use place::{temporary_directories, user_cache, write_in};

/// The recorder that interposes `malloc` and its family.
pub static RECORDER: &[u8] = include_bytes!(env!("HKSIM_RECORDER_OBJECT"));
/// The recorder that also interposes C++'s `operator new` and `delete`.
pub static RECORDER_WITH_OPERATORS: &[u8] = include_bytes!(env!("HKSIM_RECORDER_OPERATORS_OBJECT"));
/// The native allocator with its C interface.
pub static ALLOCATOR: &[u8] = include_bytes!(env!("HKSIM_ALLOCATOR_OBJECT"));

/// The environment variable that names objects to preload.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// The value of [`PRELOAD_VARIABLE`] that loads `object` before the objects that the caller already preloads.
pub fn preload_with(object: &Path) -> OsString {
    let mut value = object.as_os_str().to_owned();
    if let Some(others) = env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    value
}
