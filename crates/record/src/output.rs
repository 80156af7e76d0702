//! The path of the trace. It is checked before the run that the output can be written.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::RecordError;

/// Maximum length of the output's file name. The longest name derived from it, `.NAME.recording-XXXXXX`, is 18 bytes
/// longer.
const NAME_BYTES_MAX: usize = 255 - 18;

/// The output as an absolute path. If it is a symbolic link, the link's target is the output.
///
/// # Errors
/// The path cannot be the name of a trace.
pub fn absolute(output: &Path) -> Result<PathBuf, RecordError> {
    let path = std::path::absolute(output).map_err(RecordError::io(output, "create the trace here"))?;
    let path = if path.is_symlink() { path.canonicalize().unwrap_or(path) } else { path };
    let refused = |why| Err(RecordError::BadOutput { path: output.to_path_buf(), why });
    let taken = fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file());
    let Some(name) = path.file_name().filter(|_| !taken && !output.as_os_str().as_bytes().ends_with(b"/")) else {
        return refused("is not a regular file; name one for the trace");
    };
    if name.len() > NAME_BYTES_MAX {
        return refused("its name is too long for the files derived from it; use a name of at most 237 bytes");
    }
    if path.to_str().is_none() {
        return refused("is not UTF-8, so the session cannot store it; choose another name or directory");
    }
    Ok(path)
}

/// Checks that `output` can be written and is not the program itself.
///
/// # Errors
/// The output cannot be written, or is the program.
pub fn check(output: &Path, program: &Path) -> Result<(), RecordError> {
    let identity = |path| fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    if identity(output).is_some_and(|file| identity(program) == Some(file)) {
        let why = "is the program to record, which would be lost; name another file for the trace";
        return Err(RecordError::BadOutput { path: output.to_path_buf(), why });
    }
    let folder = output.parent().unwrap_or(Path::new("/"));
    tempfile::tempfile_in(folder).map(drop).map_err(RecordError::io(output, "create the trace here"))
}
