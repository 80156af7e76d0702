//! Whether any process has a file open or mapped. The kernel grants a lease only if none has. So the answer is valid
//! across pid namespaces, for mappings whose descriptor is closed, and for children that never ran the recorder's code.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::c_int;

/// `fcntl` command missing in libc: selects the signal sent when a lease must be given up.
const F_SETSIG: c_int = 10;

/// Whether another process has the file open or mapped for writing; `None` if the file system supports no leases.
pub fn is_written(file: &File) -> Option<bool> {
    has_others(file, libc::F_RDLCK)
}

/// Whether the file is open or mapped, apart from `file` itself; `None` if the file system supports no leases.
pub fn is_used(file: &File) -> Option<bool> {
    has_others(file, libc::F_WRLCK)
}

fn has_others(file: &File, lease: c_int) -> Option<bool> {
    let control = |command: c_int, argument: c_int| {
        // SAFETY: these commands take a number and touch no memory.
        unsafe { libc::fcntl(file.as_raw_fd(), command, argument) == 0 }
    };
    // If another process opens the file now, this process gets a signal. SIGURG is ignored by default.
    if !control(F_SETSIG, libc::SIGURG) {
        return None;
    }
    if control(libc::F_SETLEASE, lease) {
        control(libc::F_SETLEASE, libc::F_UNLCK);
        return Some(false);
    }
    (io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)).then_some(true)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    #[test]
    fn a_file_is_in_use_while_it_is_open_or_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [0; 4096]).unwrap();
        let asked = File::open(&path).unwrap();
        if is_written(&asked).is_none() {
            return println!("skipped: the file system grants no leases");
        }
        assert_eq!((is_written(&asked), is_used(&asked)), (Some(false), Some(false)));
        let reader = File::open(&path).unwrap();
        assert_eq!((is_written(&asked), is_used(&asked)), (Some(false), Some(true)));
        drop(reader);
        let writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!((is_written(&asked), is_used(&asked)), (Some(true), Some(true)));
        // SAFETY: a fresh mapping of one page, unmapped below.
        let page = unsafe {
            let writable = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), 4096, writable, libc::MAP_SHARED, writer.as_raw_fd(), 0)
        };
        assert_ne!(page, libc::MAP_FAILED);
        drop(writer);
        assert_eq!(is_written(&asked), Some(true), "mapped, though no descriptor is left");
        // SAFETY: the mapping from above.
        unsafe { libc::munmap(page, 4096) };
        assert_eq!((is_written(&asked), is_used(&asked)), (Some(false), Some(false)));
    }
}
