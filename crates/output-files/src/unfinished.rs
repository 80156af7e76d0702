//! Files and folders until they are finished.
//!
//! Each is beside the wanted path, with a random name that nobody else can have created: `.NAME.hksim-XXXXXXXX.part`.
//! Its process holds a lock on it. A name without a lock was left by a process that was killed, so the next output of
//! the same name removes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::planted::folder_of;

const SUFFIX: &str = ".part";
const RANDOM_CHARACTERS: usize = 8;
/// Bits of a file's mode that an output keeps: not setuid, setgid and sticky.
const PERMISSIONS: u32 = 0o777;

/// A new file or folder, removed when it is dropped unless [`Unfinished::keep`] gives it its final name.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    /// The open file or folder, which holds the lock.
    open: File,
    is_kept: bool,
}

impl Unfinished {
    /// An empty file beside `wanted`. It has the permissions of a file of this user that is there, else those of a new
    /// file: another user may have left a file there that everybody can write to, or a setuid one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn file(wanted: &Path) -> io::Result<Unfinished> {
        let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        let unfinished = Unfinished::new(wanted, create)?;
        if let Ok(existing) = fs::symlink_metadata(wanted)
            && existing.is_file()
            && existing.uid() == rustix::process::geteuid().as_raw()
        {
            unfinished.open.set_permissions(Permissions::from_mode(existing.mode() & PERMISSIONS))?;
        }
        Ok(unfinished)
    }

    /// An empty folder beside `wanted`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn folder(wanted: &Path) -> io::Result<Unfinished> {
        Unfinished::new(wanted, |path| {
            DirBuilder::new().create(path)?;
            open_as_it_is(path)
        })
    }

    fn new(wanted: &Path, create: impl Fn(&Path) -> io::Result<File>) -> io::Result<Unfinished> {
        let folder = folder_of(wanted);
        let prefix = prefix(wanted);
        remove_leftovers(folder, &prefix);
        let mut names = tempfile::Builder::new();
        names.prefix(&prefix).suffix(SUFFIX).rand_bytes(RANDOM_CHARACTERS);
        loop {
            let (open, path) = names.make_in(folder, &create)?.into_parts();
            let path = path.keep().map_err(|why| why.error)?;
            // File systems without locks have no leftovers removed, either.
            let _ = flock(&open, FlockOperation::LockExclusive);
            let unfinished = Unfinished { path, open, is_kept: false };
            // Before it had the lock, another process may have removed it as a leftover.
            if unfinished.has_its_name() {
                return Ok(unfinished);
            }
        }
    }

    /// Its temporary name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path to open the file by. It leads to this file even if another user exchanged the one of that name.
    pub fn path_of_file(&self) -> PathBuf {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.open.as_raw_fd()));
        if path.exists() { path } else { self.path.clone() }
    }

    /// Renames it to its final name.
    ///
    /// # Errors
    /// The system refuses.
    pub fn keep(mut self, wanted: &Path) -> io::Result<()> {
        fs::rename(&self.path, wanted)?;
        self.is_kept = true;
        Ok(())
    }

    fn has_its_name(&self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let named = fs::symlink_metadata(&self.path).map(identity);
        matches!((named, self.open.metadata().map(identity)), (Ok(named), Ok(open)) if named == open)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_kept {
            remove(&self.path);
        }
    }
}

fn prefix(wanted: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(wanted.file_name().unwrap_or_default());
    prefix.push(".hksim-");
    prefix
}

/// Removes what killed processes of this user left.
fn remove_leftovers(folder: &Path, prefix: &OsStr) {
    let length = prefix.len() + RANDOM_CHARACTERS + SUFFIX.len();
    let is_ours = |name: &OsStr| {
        let name = name.as_bytes();
        name.len() == length && name.starts_with(prefix.as_bytes()) && name.ends_with(SUFFIX.as_bytes())
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.filter(|entry| is_ours(&entry.file_name())).map(|entry| entry.path()) {
        let Ok(open) = open_as_it_is(&path) else { continue };
        let is_own = open.metadata().is_ok_and(|metadata| {
            metadata.uid() == rustix::process::geteuid().as_raw() && (metadata.is_file() || metadata.is_dir())
        });
        // The lock is held until the name is gone.
        if is_own && flock(&open, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(&path);
        }
    }
}

/// Opens a file or folder without following a link and without waiting for the writer of a pipe.
fn open_as_it_is(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// What cannot be removed stays for the next process.
fn remove(path: &Path) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    let _ = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("the folder").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().into_string().expect("a plain name")).collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_a_killed_process_left_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = folder.path().join("out");
        let in_use = [Unfinished::file(&wanted).expect("a file"), Unfinished::folder(&wanted).expect("a folder")];
        fs::create_dir(folder.path().join(".out.hksim-killed00.part")).expect("a leftover");
        fs::write(folder.path().join(".out.hksim-killed00.part/x"), "").expect("its file");
        fs::write(folder.path().join(".out.hksim-killed01.part"), "").expect("a leftover");
        std::os::unix::fs::symlink("elsewhere", folder.path().join(".out.hksim-link0000.part")).expect("a link");
        for foreign in [".out.hksim-longer001.part", ".out.part", ".out.1234.part", ".other.hksim-killed00.part"] {
            fs::write(folder.path().join(foreign), "").expect("a foreign file");
        }
        drop(Unfinished::file(&wanted).expect("a file"));
        let left = names(folder.path());
        assert!(!left.iter().any(|name| name.contains("out.hksim-killed")), "{left:?}");
        assert_eq!(left.len(), 4 + 1 + in_use.len(), "{left:?}");
        drop(in_use);
        assert_eq!(names(folder.path()).len(), 5);
    }

    #[test]
    fn simultaneous_outputs_of_one_name_do_not_remove_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = folder.path().join("out");
        std::thread::scope(|scope| {
            for number in 0..4 {
                let wanted = &wanted;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let unfinished = Unfinished::file(wanted).expect("a file");
                        fs::write(unfinished.path_of_file(), number.to_string()).expect("written");
                        unfinished.keep(wanted).expect("its name is still there");
                    }
                });
            }
        });
        assert_eq!(names(folder.path()), ["out"]);
    }
}
