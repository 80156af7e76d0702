//! Directories that a running process and this one both reach: for its log, and for the recorder's object.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hksim_embedded::temporary_directories;

use crate::attach::target::Target;
use crate::attachment::{OBJECT_NAME, PATH_BYTES};
use crate::error::RecordError;
use crate::object::{self, Unpacked, Variant};

/// Directories in which every user can create files, in most file systems.
const PUBLIC: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// A directory under two paths.
#[derive(Debug)]
struct Place {
    /// As this process sees it.
    here: PathBuf,
    /// As the recorded process sees it.
    there: PathBuf,
    /// Keeps `here` valid: it leads through this descriptor if the two processes see different files.
    _open: Option<File>,
}

impl Place {
    fn shared(path: &Path) -> Self {
        Self { here: path.to_path_buf(), there: path.to_path_buf(), _open: None }
    }

    /// A directory of a process that sees other files.
    fn inside(target: &Target, path: &str) -> Option<Self> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC);
        let open = options.open(format!("/proc/{}/root{path}", target.pid)).ok()?;
        let here = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        Some(Self { here, there: PathBuf::from(path), _open: Some(open) })
    }

    /// The path in the recorded process of a file below this directory.
    fn there(&self, path: &Path) -> Option<PathBuf> {
        let path = self.there.join(path.strip_prefix(&self.here).ok()?);
        (path.as_os_str().len() < PATH_BYTES).then_some(path)
    }
}

/// Where the process writes its log.
#[derive(Debug)]
pub struct SessionPlace(Place);

impl SessionPlace {
    /// The directory `wished` if the process reaches it, or one in which every user can create files.
    ///
    /// # Errors
    /// There is none.
    pub fn find(target: &Target, wished: &Path) -> Result<Self, RecordError> {
        // SAFETY: no arguments.
        let is_own = target.user == 0 || target.user == unsafe { libc::geteuid() };
        if target.sees_same_files && is_own {
            return Ok(Self(Place::shared(wished)));
        }
        let usable = |place: &Place| tempfile::tempfile_in(&place.here).is_ok();
        let all = PUBLIC.iter().filter_map(|path| match target.sees_same_files {
            true => Some(Place::shared(Path::new(path))),
            false => Place::inside(target, path),
        });
        all.into_iter().find(usable).map(Self).ok_or_else(|| no_place(target, "its log"))
    }

    /// The directory, as this process sees it.
    pub fn here(&self) -> &Path {
        &self.0.here
    }

    /// The path in the recorded process of a file below the directory.
    pub fn there(&self, path: &Path) -> Option<PathBuf> {
        self.0.there(path)
    }
}

/// The recorder's object, as a file that the process can load.
pub struct PlacedObject {
    /// The file, as this process sees it.
    pub unpacked: Unpacked,
    /// The file, as the recorded process sees it.
    pub there: PathBuf,
    /// Keeps the path of `unpacked` valid.
    _place: Place,
}

impl PlacedObject {
    /// Unpacks the object where the process can load it.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn unpack(target: &Target, variant: Variant) -> Result<Self, RecordError> {
        let places: Vec<Place> = match target.sees_same_files {
            true => temporary_directories()
                .iter()
                .filter_map(|path| fs::canonicalize(path).ok())
                .map(|path| Place::shared(&path))
                .collect(),
            false => PUBLIC.iter().filter_map(|path| Place::inside(target, path)).collect(),
        };
        for place in places {
            let Some(unpacked) = object::unpack_in(&place.here, OBJECT_NAME, variant) else {
                continue;
            };
            if let Some(there) = place.there(&unpacked.path) {
                return Ok(Self { unpacked, there, _place: place });
            }
        }
        Err(no_place(target, "the recorder's object"))
    }
}

fn no_place(target: &Target, what: &str) -> RecordError {
    let why = format!(
        "no directory for {what}: {} cannot be written, do not allow execution, or do not exist where it runs",
        PUBLIC.join(", ")
    );
    RecordError::CannotAttach { pid: target.pid, why }
}
