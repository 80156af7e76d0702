//! Sets modes of the machine, and restores them.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use hksim_linux_probe::sysfs::{THP, choice, text};

/// Modes that are set until this is dropped. Others that change modes lock the same folder.
pub struct Modes {
    before: Vec<(String, String)>,
    _lock: File,
}

impl Modes {
    /// Waits until nobody changes the modes. `None`, with the reason printed, without root.
    pub fn lock() -> Option<Self> {
        let lock = File::open("/sys/kernel/mm").expect("a folder");
        // SAFETY: an open descriptor.
        let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
        let path = format!("{THP}/enabled");
        let is_writable = choice(&path).is_some_and(|mode| fs::write(&path, mode).is_ok());
        if locked != 0 || !is_writable {
            eprintln!("skipped: the machine's modes can be changed by root only");
            return None;
        }
        Some(Self { before: Vec::new(), _lock: lock })
    }

    /// Sets a file below `/sys/kernel/mm/transparent_hugepage`.
    pub fn set(&mut self, file: &str, value: &str) {
        let path = format!("{THP}/{file}");
        let before = choice(&path).or_else(|| text(&path)).expect("a mode");
        fs::write(&path, value).expect("root sets modes");
        self.before.push((path, before));
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        for (path, before) in self.before.iter().rev() {
            if let Err(why) = fs::write(path, before) {
                eprintln!("{path}: cannot be restored to {before}: {why}");
            }
        }
    }
}
