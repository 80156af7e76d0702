//! Directories to which an object can be unpacked, so that every user can read the file and the kernel can map it
//! executable.

use std::env;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

/// The user's cache directory, if there is one.
pub fn user_cache() -> Option<PathBuf> {
    cache_of(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
}

/// The XDG Base Directory Specification: an empty or relative value counts as none.
fn cache_of(cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(cache).or_else(|| absolute(home).map(|home| home.join(".cache")))
}

/// Directories for temporary files, best first.
pub fn temporary_directories() -> Vec<PathBuf> {
    let mut places = vec![env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    places.extend(user_cache());
    places.dedup();
    places
}

/// Writes an object to a new file in a directory; a file of that name is left as it is. Every user can read the file, since the program may change its user.
/// `None` if the file cannot be written, or if it could not be named in `LD_PRELOAD` or mapped executable.
pub fn write_in(folder: &Path, name: &str, object: &[u8]) -> Option<PathBuf> {
    let path = std::path::absolute(folder).ok()?.join(name);
    if !can_be_named(&path) {
        return None;
    }
    let mut file = File::options().write(true).create_new(true).open(&path).ok()?;
    file.write_all(object).ok()?;
    file.set_permissions(Permissions::from_mode(0o755)).ok()?;
    drop(file);
    allows_execution(&File::open(&path).ok()?).then_some(path)
}

/// Whether LD_PRELOAD can name a file. Spaces and colons separate the names there.
pub(crate) fn can_be_named(path: &Path) -> bool {
    path.to_str().is_some_and(|path| !path.contains([' ', ':']))
}

/// Whether the file can be mapped executable, which a file system mounted noexec forbids.
pub(crate) fn allows_execution(file: &File) -> bool {
    // SAFETY: a new private mapping of our own file touches no existing memory and is unmapped below.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        let mapped = libc::mmap(null_mut(), 1, protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        mapped != libc::MAP_FAILED && libc::munmap(mapped, 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_relative_directories_are_not_used() {
        let cache = |cache: Option<&str>, home: Option<&str>| cache_of(cache.map(Into::into), home.map(Into::into));
        assert_eq!(cache(Some("/c"), Some("/h")), Some("/c".into()));
        for given in [None, Some(""), Some("c"), Some("./c"), Some("../c")] {
            assert_eq!(cache(given, Some("/h")), Some("/h/.cache".into()), "{given:?}");
            assert_eq!(cache(given, given), None, "{given:?}");
        }
    }
}
