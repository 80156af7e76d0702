//! The environment of the recorded program: that of this process plus a few variables. Order and duplicates are kept.
//! (`std::process::Command` would sort the variables and drop duplicates.)

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null;

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// An environment in the kernel's format.
pub struct Environment {
    entries: Vec<CString>,
}

impl Environment {
    /// The environment of this process.
    pub fn own() -> Self {
        let mut entries = Vec::new();
        // SAFETY: the environment is a list of C strings that ends with null, and nothing here changes it.
        unsafe {
            let mut at = environ;
            while !at.is_null() && !(*at).is_null() {
                entries.push(CStr::from_ptr(*at).to_owned());
                at = at.add(1);
            }
        }
        Self { entries }
    }

    /// Sets a variable: in place if it exists, else at the end.
    ///
    /// # Errors
    /// The value contains a zero byte.
    pub fn set(&mut self, name: &str, value: &OsStr) -> io::Result<()> {
        let mut entry = OsString::from(name);
        entry.push("=");
        let before = entry.as_bytes().to_vec();
        entry.push(value);
        let entry = CString::new(entry.as_bytes())?;
        let mut is_there = false;
        for old in self.entries.iter_mut().filter(|old| old.to_bytes().starts_with(&before)) {
            // Programs differ in which of several duplicates they read, so all are set.
            old.clone_from(&entry);
            is_there = true;
        }
        if !is_there {
            self.entries.push(entry);
        }
        Ok(())
    }

    /// Makes `command` start with this environment.
    pub fn give_to(self, command: &mut Command) {
        let pointers = self.entries.iter().map(|entry| entry.as_ptr()).chain([null()]).collect();
        let given = Given { _entries: self.entries, pointers };
        // SAFETY: the closure stores one pointer, which is allowed in a forked child.
        unsafe { command.pre_exec(move || given.install()) };
    }
}

/// An environment in the format of `exec`: its entries, and pointers to them.
struct Given {
    _entries: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers refer to strings that this value owns and that never change.
unsafe impl Send for Given {}
// SAFETY: as above.
unsafe impl Sync for Given {}

impl Given {
    fn install(&self) -> io::Result<()> {
        // SAFETY: called in a forked child, which has one thread; the list exists until the child executes the program.
        unsafe { environ = self.pointers.as_ptr() };
        Ok(())
    }
}
