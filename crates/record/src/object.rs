//! The preloaded object, unpacked for one recording.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hksim_carry::{RECORDER, RECORDER_WITH_OPERATORS, temporary_places, write_in};
use tempfile::TempDir;

use crate::error::RecordError;

/// Which functions the object stands before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// `malloc` and its family.
    Malloc,
    /// Those and C++'s `operator new` and `delete`, for allocators that serve them past `malloc`. Not for every program:
    /// where a C program loads a C++ library later, that library's own operators would no longer be called.
    MallocAndOperators,
}

impl Variant {
    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Malloc => RECORDER,
            Self::MallocAndOperators => RECORDER_WITH_OPERATORS,
        }
    }
}

const FILE_NAME: &str = "preload.so";

/// The object as a file, in a directory of its own that goes away with this value.
pub struct Unpacked {
    directory: TempDir,
    /// The file.
    pub path: PathBuf,
}

impl Unpacked {
    /// Leaves the file behind: processes that still run will load it again when they execute another program.
    pub fn keep(self) {
        let _ = self.directory.keep();
    }
}

/// Unpacks the object, readable for every user (the program may change its own), to a place that allows execution.
///
/// # Errors
/// There is no such place.
pub fn unpack(variant: Variant) -> Result<Unpacked, RecordError> {
    let places = temporary_places();
    places.iter().find_map(|place| unpack_in(place, variant)).ok_or_else(|| RecordError::NoPlaceForObject {
        tried: places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

/// Removes what a recorder that died has unpacked, if it is still there.
pub fn remove_left_behind(path: &Path) {
    if path.file_name().is_some_and(|name| name == FILE_NAME) && fs::remove_file(path).is_ok() {
        // Only ever an empty directory.
        let _ = path.parent().map(fs::remove_dir);
    }
}

fn unpack_in(place: &Path, variant: Variant) -> Option<Unpacked> {
    let directory = tempfile::Builder::new().prefix("hksim-record-").tempdir_in(place).ok()?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).ok()?;
    let path = write_in(directory.path(), FILE_NAME, variant.bytes())?;
    Some(Unpacked { directory, path })
}
