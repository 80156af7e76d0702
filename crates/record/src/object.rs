//! The preloaded object, unpacked for one recording.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hksim_embedded::{RECORDER, RECORDER_WITH_OPERATORS, temporary_directories, write_in};
use tempfile::TempDir;

use crate::attachment::OBJECT_NAME;
use crate::error::RecordError;
use crate::in_use;

/// Which functions the object interposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// `malloc` and its family.
    Malloc,
    /// `malloc` and C++'s `operator new` and `delete`, for allocators that do not implement the operators with
    /// `malloc`. Not for every program: if a C program loads a C++ library later, the library's own operators are not
    /// called.
    MallocAndOperators,
}

impl Variant {
    /// The object's file.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Self::Malloc => RECORDER,
            Self::MallocAndOperators => RECORDER_WITH_OPERATORS,
        }
    }

    /// Whether the object interposes C++'s operators.
    pub fn sees_operators(self) -> bool {
        self == Self::MallocAndOperators
    }
}

const FILE_NAME: &str = "preload.so";

/// Name prefix of the directories to which objects are unpacked.
const DIRECTORY_PREFIX: &str = "hksim-record-";
/// Minimum age at which a directory without a recorder counts as abandoned.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// The object as a file. Its directory is removed when this value is dropped.
pub struct Unpacked {
    directory: TempDir,
    /// The file.
    pub path: PathBuf,
    /// Open as a sign to other recorders that the directory is in use.
    held: File,
}

impl Unpacked {
    /// Whether any process has the object loaded; `None` if the file system cannot report it.
    pub fn is_loaded(&self) -> Option<bool> {
        in_use::is_used(&self.held)
    }

    /// Keeps the file if a process has it loaded, for the next recording of that process.
    pub fn keep_if_loaded(self) {
        if self.is_loaded().unwrap_or(true) {
            self.keep();
        }
    }

    /// Keeps the file: processes that still run load it again when they execute another program.
    pub fn keep(self) {
        let _ = self.directory.keep();
    }
}

/// Unpacks the object into a directory that allows execution. Every user can read it, because the program may change
/// its user. Also removes objects that earlier recordings kept for processes that have since ended.
///
/// # Errors
/// No directory can be written and allows execution.
pub fn unpack(variant: Variant) -> Result<Unpacked, RecordError> {
    let places = temporary_directories();
    places.iter().for_each(|place| remove_all_left_behind(place));
    places.iter().find_map(|place| unpack_in(place, FILE_NAME, variant)).ok_or_else(|| RecordError::NoPlaceForObject {
        tried: places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

/// Removes the object of a recorder that died, unless a process has it loaded. Returns whether a process has it loaded.
pub fn remove_left_behind(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    if path.file_name().is_none_or(|name| name != FILE_NAME && name != OBJECT_NAME) {
        return false;
    }
    let is_loaded = in_use::is_used(&file).unwrap_or(true);
    if !is_loaded && fs::remove_file(path).is_ok() {
        // Removes the directory only if it is empty.
        let _ = path.parent().map(fs::remove_dir);
    }
    is_loaded
}

fn remove_all_left_behind(place: &Path) {
    // SAFETY: no arguments.
    let user = unsafe { libc::geteuid() };
    let is_left = |path: &Path| {
        let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DIRECTORY_PREFIX));
        let data = is_ours.then(|| fs::symlink_metadata(path).ok()).flatten();
        data.is_some_and(|data| {
            let age = data.modified().ok().and_then(|time| time.elapsed().ok());
            data.is_dir() && data.uid() == user && age.is_some_and(|age| age > LEFT_BEHIND)
        })
    };
    let entries = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    for directory in entries.filter(|path| is_left(path)) {
        remove_left_behind(&directory.join(FILE_NAME));
        remove_left_behind(&directory.join(OBJECT_NAME));
    }
}

/// As [`unpack`], in one directory and under another name; `None` if the directory cannot be used.
pub fn unpack_in(place: &Path, name: &str, variant: Variant) -> Option<Unpacked> {
    let directory = tempfile::Builder::new().prefix(DIRECTORY_PREFIX).tempdir_in(place).ok()?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).ok()?;
    let path = write_in(directory.path(), name, variant.bytes())?;
    let held = File::open(&path).ok()?;
    Some(Unpacked { directory, path, held })
}
