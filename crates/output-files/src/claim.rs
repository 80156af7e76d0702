//! The claim of a recording on its output's name. Of two recordings that end one after the other, the second would
//! replace the first, so the second does not start.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::OutputError;

/// A locked file next to the output, `.app.hkt.lock`, with the process id of its owner. The kernel releases the lock of a
/// process that dies.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    _file: File,
}

impl Claim {
    /// Claims the name of an output. `None` if no file of this user can be next to it: the recording fails for the same
    /// reason, and reports it; or another user has placed something else there.
    ///
    /// # Errors
    /// Another process has claimed the name.
    pub fn new(output: &Path) -> Result<Option<Claim>, OutputError> {
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let path = output.with_file_name(format!(".{name}.lock"));
        loop {
            let Some(mut file) = open(&path) else { return Ok(None) };
            // On a file system without locks nothing can be claimed.
            if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                return Err(OutputError::Claimed { output: output.to_path_buf(), owner: owner.trim().parse().ok() });
            }
            // The last owner may have removed the file before this process locked it.
            if is_linked(&path, &file) {
                // Without the id, only the message to others is shorter.
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", process::id()));
                return Ok(Some(Claim { path, _file: file }));
            }
        }
    }
}

/// The lock file of this user. In a folder for all, another user may have placed a file, a pipe or a second name of a
/// file of this user there: none of these may be written to or waited for.
fn open(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32).open(path).ok()?;
    let data = file.metadata().ok()?;
    let is_own = data.is_file() && data.uid() == rustix::process::geteuid().as_raw() && data.nlink() <= 1;
    is_own.then_some(file)
}

/// Whether the file still has its name.
fn is_linked(path: &Path, file: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let named = fs::symlink_metadata(path).ok().map(identity);
    named.is_some() && named == file.metadata().ok().map(identity)
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A file that stays is harmless: it is no longer locked.
        let _ = fs::remove_file(&self.path);
    }
}
