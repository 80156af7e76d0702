//! Shows a program another mode of huge pages than the machine's: allocators read it at their start and place memory
//! accordingly. The program gets a private view of the file in sysfs; the mode itself stays.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use hksim_linux_probe::sysfs;
use tempfile::NamedTempFile;

/// The words of the file, in the kernel's order.
const MODES: [&str; 3] = ["always", "madvise", "never"];

/// The file that a program sees instead of `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Debug)]
pub struct ShownMode {
    /// Removed when dropped.
    _file: NamedTempFile,
    source: CString,
    target: CString,
}

impl ShownMode {
    /// Writes the file for a mode.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(mode: &str) -> io::Result<Self> {
        let words = MODES.map(|word| if word == mode { format!("[{word}]") } else { word.to_string() });
        let mut file = NamedTempFile::with_prefix("hksim-")?;
        writeln!(file, "{}", words.join(" "))?;
        // Programs of other users read it, too.
        std::fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        let source = CString::new(file.path().as_os_str().as_bytes())?;
        Ok(Self { _file: file, source, target: CString::new(format!("{}/enabled", sysfs::THP))? })
    }

    /// Shows it to this process and its descendants. Called between fork and exec: makes only system calls.
    pub fn show(&self) -> io::Result<()> {
        let none = std::ptr::null();
        // SAFETY: the strings end with 0 and live as long as `self`; a null pointer stands for no string.
        let results = unsafe {
            [
                libc::unshare(libc::CLONE_NEWNS),
                // Mounts must not reach other processes.
                libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()),
                libc::mount(self.source.as_ptr(), self.target.as_ptr(), none, libc::MS_BIND, none.cast()),
            ]
        };
        if results == [0; 3] { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
