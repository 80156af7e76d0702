//! Opens files that recorded processes write.
//!
//! Processes of another user may create anything in root's directory of logs. A pipe must not block the reader, and a
//! link must not lead it, or what it writes, to another file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file to read it.
///
/// # Errors
/// It cannot be opened, or is not a regular file with a single name ([`is_other`]).
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true))
}

/// Opens a file to write to it.
///
/// # Errors
/// As for [`open`].
pub fn open_to_write(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().write(true))
}

fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    let data = file.metadata()?;
    if data.is_file() && data.nlink() <= 1 { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Whether the reason for a failure is that the file is a link, a pipe or a device.
pub fn is_other(why: &io::Error) -> bool {
    why.kind() == io::ErrorKind::InvalidInput || matches!(why.raw_os_error(), Some(libc::ELOOP | libc::ENXIO))
}
