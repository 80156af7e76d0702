//! The preloaded object, carried inside this library and unpacked where the dynamic linker can load it.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use tempfile::TempDir;

use crate::error::RecordError;

static OBJECT: &[u8] = include_bytes!(env!("HKSIM_PRELOAD_OBJECT"));
static OBJECT_WITH_OPERATORS: &[u8] = include_bytes!(env!("HKSIM_PRELOAD_OBJECT_OPERATORS"));

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
    const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Malloc => OBJECT,
            Self::MallocAndOperators => OBJECT_WITH_OPERATORS,
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
    let places = places();
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

fn places() -> Vec<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let mut places = vec![env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    places.extend(cache);
    places.dedup();
    places
}

fn unpack_in(place: &Path, variant: Variant) -> Option<Unpacked> {
    let directory = tempfile::Builder::new().prefix("hksim-record-").tempdir_in(place).ok()?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).ok()?;
    let path = directory.path().canonicalize().ok()?.join(FILE_NAME);
    // LD_PRELOAD separates its words by these.
    if path.to_str()?.contains([' ', ':']) {
        return None;
    }
    let mut file = File::create(&path).ok()?;
    file.write_all(variant.bytes()).ok()?;
    file.set_permissions(Permissions::from_mode(0o755)).ok()?;
    drop(file);
    allows_execution(&File::open(&path).ok()?).then_some(Unpacked { directory, path })
}

/// Whether the file can be mapped executable: not so where its file system is mounted noexec.
fn allows_execution(file: &File) -> bool {
    // SAFETY: a new private mapping of our own file touches no existing memory and is unmapped at once.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        let mapped = libc::mmap(null_mut(), 1, protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        mapped != libc::MAP_FAILED && libc::munmap(mapped, 1) == 0
    }
}
