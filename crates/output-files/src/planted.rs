//! What another user may have placed at the name of an output.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::error::OutputError;

/// The folder of a path.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a symbolic link or a pipe that another user may have placed in a folder for all users, such as /tmp. These
/// are the kernel's rules `fs.protected_symlinks` and `fs.protected_fifos`, which can be switched off, and which a rename
/// does not obey.
///
/// # Errors
/// It is one of them.
pub fn refuse_planted(output: &Path) -> Result<(), OutputError> {
    const STICKY_FOR_ALL: u32 = libc::S_ISVTX | libc::S_IWOTH;
    let Ok(found) = fs::symlink_metadata(output) else { return Ok(()) };
    let what = match found.file_type() {
        kind if kind.is_symlink() => "a link",
        kind if kind.is_fifo() => "a pipe",
        _ => return Ok(()),
    };
    let Ok(folder) = fs::metadata(folder_of(output)) else { return Ok(()) };
    let is_known = [rustix::process::geteuid().as_raw(), folder.uid()].contains(&found.uid());
    if folder.mode() & STICKY_FOR_ALL == STICKY_FOR_ALL && !is_known {
        return Err(OutputError::Planted { output: output.to_path_buf(), what });
    }
    Ok(())
}
