//! Unpacks an object once and keeps the file. The program that loads the object replaces hksim, so no process remains
//! to remove the file.

use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::place::{allows_execution, can_be_named, user_cache, write_in};

/// There is no directory to which the object can be unpacked and from which it can be loaded.
#[derive(Debug)]
pub struct NoUsableDirectory {
    /// The directories tried.
    pub tried: Vec<PathBuf>,
}

impl std::fmt::Display for NoUsableDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tried: Vec<String> = self.tried.iter().map(|place| place.display().to_string()).collect();
        write!(
            f,
            "no directory to unpack the allocator to (tried {}); set XDG_CACHE_HOME to a directory of yours that is writable, \
             not mounted noexec, and has no space or colon in its name",
            tried.join(", ")
        )
    }
}

impl std::error::Error for NoUsableDirectory {}

/// The file `NAME.so` with the object's bytes, in a directory that only the user can write. The first call writes it;
/// later calls use it. The directory's name contains a hash of the object, so that several versions of hksim can run at
/// the same time.
///
/// # Errors
/// No directory is usable.
pub fn cached(name: &str, object: &[u8]) -> Result<PathBuf, NoUsableDirectory> {
    // SAFETY: has no precondition.
    let user = unsafe { libc::geteuid() };
    let own = format!("hksim-{user}");
    let mut places: Vec<PathBuf> = user_cache().map(|cache| cache.join("hksim")).into_iter().collect();
    places.extend([PathBuf::from("/tmp").join(&own), PathBuf::from("/var/tmp").join(&own)]);
    let found = places.iter().find_map(|place| cached_in(place, user, name, object));
    found.ok_or(NoUsableDirectory { tried: places })
}

fn cached_in(place: &Path, user: u32, name: &str, object: &[u8]) -> Option<PathBuf> {
    let folder = place.join(format!("{:016x}", fingerprint(object)));
    DirBuilder::new().recursive(true).mode(0o755).create(&folder).ok()?;
    if ![place, &folder].into_iter().all(|folder| belongs_to(folder, user)) {
        return None;
    }
    let path = folder.canonicalize().ok()?.join(format!("{name}.so"));
    if holds(&path, user, object) {
        return (can_be_named(&path) && allows_execution(&File::open(&path).ok()?)).then_some(path);
    }
    // Write to a temporary file and rename it, so that no process can load an incomplete object.
    let new_name = format!("{name}.{}", std::process::id());
    // Only this user writes to the folder, so a file of this name was left by an ended process with the same number.
    let _ = fs::remove_file(folder.join(&new_name));
    let new = write_in(&folder, &new_name, object)?;
    match fs::rename(&new, &path) {
        Ok(()) => Some(path),
        Err(_) => {
            let _ = fs::remove_file(&new);
            None
        }
    }
}

/// Whether only this user can write to `path`. In /tmp, another user may have created it first.
fn belongs_to(path: &Path, user: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.uid() == user && !found.is_symlink() && found.mode() & 0o022 == 0)
}

fn holds(path: &Path, user: u32, object: &[u8]) -> bool {
    let mut found = Vec::with_capacity(object.len() + 1);
    let read = || File::open(path)?.take(object.len() as u64 + 1).read_to_end(&mut found);
    belongs_to(path, user) && { read }().is_ok() && found == object
}

/// A hash that distinguishes versions. The bytes themselves are compared before a file is used.
fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hash = DefaultHasher::new();
    hash.write(bytes);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn user() -> u32 {
        // SAFETY: has no precondition.
        unsafe { libc::geteuid() }
    }

    #[test]
    fn a_file_is_written_once_and_rewritten_after_a_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("cache/hksim");
        let first = cached_in(&place, user(), "object", b"bytes").expect("a place");
        let written = fs::metadata(&first).expect("the file").ino();
        assert_eq!(cached_in(&place, user(), "object", b"bytes"), Some(first.clone()));
        assert_eq!(fs::metadata(&first).expect("the file").ino(), written, "the file stays");
        fs::write(&first, b"bytes!").expect("written");
        assert_eq!(cached_in(&place, user(), "object", b"bytes"), Some(first.clone()));
        assert_eq!(fs::read(&first).expect("read"), b"bytes");
        assert_ne!(cached_in(&place, user(), "object", b"others"), Some(first), "each object has its own folder");
    }

    #[test]
    fn folders_that_others_could_write_to_are_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = folder.path().join("open");
        fs::create_dir(&open).expect("a folder");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("our own folder");
        assert_eq!(cached_in(&open, user(), "object", b"bytes"), None);
        let link = folder.path().join("link");
        symlink(folder.path(), &link).expect("linked");
        assert_eq!(cached_in(&link, user(), "object", b"bytes"), None);
        assert_eq!(cached_in(&folder.path().join("with space"), user(), "object", b"bytes"), None);
    }
}
