//! Changes the machine's modes, and restores them even if this process is killed.
//!
//! Before a mode is changed, a guard process gets its old value. The guard runs in a separate session, so Ctrl-C does
//! not reach it. Its input ends when this process ends, for whatever reason. The guard then writes the old values back.
//! Only one guard is active at a time: otherwise a second run would record the first run's modes as the machine's own
//! ([`crate::guard`]).

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hksim_linux_mm::Overcommit;
use hksim_linux_mm::script::Header;
use hksim_linux_probe::sysfs::{HUGETLB, THP, choice, number, text};
use thiserror::Error;

use crate::guard::{GUARD_ARGUMENT, KNOWN, MINE, WAITING};
use crate::host::taken_hugetlb_pages;

/// A mode could not be set.
#[derive(Debug, Error)]
pub enum ModeError {
    /// The guard process cannot be started, or does not respond.
    #[error("cannot start the process that restores modes: {source}")]
    Guard {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{path}: cannot set to `{value}`: {source}")]
    Refused {
        /// The file.
        path: String,
        /// The value.
        value: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The kernel did not accept the value.
    #[error("{path}: wrote `{value}`, but it reads `{got}`")]
    NotTaken {
        /// The file.
        path: String,
        /// The value written.
        value: String,
        /// The value read afterwards.
        got: String,
    },
}

/// The changed modes. They are restored when this is dropped, or when this process is killed.
pub struct SetModes {
    guard: Child,
    guard_input: Option<ChildStdin>,
    guard_output: BufReader<ChildStdout>,
}

impl SetModes {
    /// Starts the guard; changes nothing yet. If another process holds the lock on the machine's modes, calls
    /// `waiting`, and returns once that process has restored the modes.
    ///
    /// # Errors
    /// The guard does not start, or has no file to lock (no /sys).
    pub fn new(waiting: impl FnOnce()) -> Result<SetModes, ModeError> {
        let failed = |source| ModeError::Guard { source };
        let mut command = Command::new("/proc/self/exe");
        command.arg(GUARD_ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: setsid is async-signal-safe.
        unsafe { command.pre_exec(|| if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }) };
        let mut guard = command.spawn().map_err(failed)?;
        let (Some(guard_input), Some(guard_output)) = (guard.stdin.take(), guard.stdout.take()) else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let mut modes = SetModes { guard, guard_input: Some(guard_input), guard_output: BufReader::new(guard_output) };
        let mut answer = modes.answer().map_err(failed)?;
        if answer == WAITING {
            waiting();
            answer = modes.answer().map_err(failed)?;
        }
        if answer == MINE { Ok(modes) } else { Err(failed(io::ErrorKind::BrokenPipe.into())) }
    }

    /// Sets all modes that a script's header names.
    ///
    /// # Errors
    /// A file cannot be written, usually for lack of rights. Modes that were already set stay until `self` is dropped.
    pub fn apply(&mut self, header: &Header) -> Result<(), ModeError> {
        if header.overcommit == Some(Overcommit::Never) {
            self.raise_commit_limit()?;
        }
        for line in header.to_string().lines() {
            if let Some((path, value)) = file_of(line) {
                self.set(&path, &value)?;
            }
        }
        match header.pool {
            // Add the pages that processes use or have reserved, so that `pages` are free.
            Some(pages) => self.set(&pool_file(), &(pages + taken_hugetlb_pages()).to_string()),
            None => Ok(()),
        }
    }

    /// Raises the commit limit for mode 2 of overcommit, so that no process on the machine reaches it.
    fn raise_commit_limit(&mut self) -> Result<(), ModeError> {
        // If overcommit_kbytes is 0, the kernel uses overcommit_ratio, in percent of memory.
        let kilobytes = "/proc/sys/vm/overcommit_kbytes";
        match current(kilobytes).as_deref() {
            None | Some("0") => self.set("/proc/sys/vm/overcommit_ratio", "1000000"),
            Some(_) => self.set(kilobytes, &(1u64 << 40).to_string()),
        }
    }

    /// Pauses khugepaged by setting its sleep between scans to one hour. Scripts may set it to work meanwhile.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn pause_khugepaged(&mut self) -> Result<(), ModeError> {
        let pages = format!("{THP}/khugepaged/pages_to_scan");
        if let Some(now) = current(&pages) {
            self.register(&pages, &now).map_err(|source| ModeError::Guard { source })?;
        }
        self.set(&format!("{THP}/khugepaged/scan_sleep_millisecs"), "3600000")
    }

    fn set(&mut self, path: &str, value: &str) -> Result<(), ModeError> {
        let refused = |source| ModeError::Refused { path: path.into(), value: value.into(), source };
        let now = current(path);
        if now.as_deref().unwrap_or(without_file(path)) == value {
            return Ok(());
        }
        let now = now.ok_or_else(|| refused(io::ErrorKind::NotFound.into()))?;
        self.register(path, &now).map_err(|source| ModeError::Guard { source })?;
        fs::write(path, value).map_err(refused)?;
        match current(path) {
            Some(got) if got != value => Err(ModeError::NotTaken { path: path.into(), value: value.into(), got }),
            _ => Ok(()),
        }
    }

    /// Sends the guard a value to restore, and waits for its acknowledgement.
    fn register(&mut self, path: &str, value: &str) -> io::Result<()> {
        let guard_input = self.guard_input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(guard_input, "{path} {value}")?;
        guard_input.flush()?;
        if self.answer()? == KNOWN { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    /// A line from the guard. Empty if the guard has ended.
    fn answer(&mut self) -> io::Result<String> {
        let mut answer = String::new();
        self.guard_output.read_line(&mut answer)?;
        Ok(answer.trim().to_string())
    }
}

impl Drop for SetModes {
    fn drop(&mut self) {
        drop(self.guard_input.take());
        // The guard exits once everything is restored.
        let _ = self.guard.wait();
    }
}

impl fmt::Debug for SetModes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SetModes(guard {})", self.guard.id())
    }
}

/// The mode that a kernel without the mode's file behaves like: 2 MiB follows the global mode, and other sizes are not
/// used.
fn without_file(path: &str) -> &'static str {
    if path == format!("{THP}/hugepages-2048kB/enabled") { "inherit" } else { "never" }
}

const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

/// The value of a mode file: the bracketed word, or all of it.
fn current(path: &str) -> Option<String> {
    if path == pool_file() {
        return pool_pages().map(|pages| pages.to_string());
    }
    choice(path).or_else(|| text(path))
}

fn pool_file() -> String {
    format!("{HUGETLB}/nr_hugepages")
}

/// The configured pool size. The kernel's file also counts surplus pages, which are still in use or reserved after the
/// pool was shrunk. Writing that number back would make them permanent.
fn pool_pages() -> Option<u64> {
    let surplus = number(&format!("{HUGETLB}/surplus_hugepages")).unwrap_or(0);
    Some(number(&pool_file())?.saturating_sub(surplus))
}

/// The file for a header line, and the value to write. `room` and `base` are not modes; `pool` is handled separately.
fn file_of(line: &str) -> Option<(String, String)> {
    let words: Vec<&str> = line.split(' ').collect();
    Some(match words[..] {
        ["thp", mode] => (format!("{THP}/enabled"), mode.to_string()),
        ["mthp", kilobytes, mode] => (format!("{THP}/hugepages-{kilobytes}kB/enabled"), mode.to_string()),
        ["zero_page", state] => (format!("{THP}/use_zero_page"), u8::from(state == "on").to_string()),
        ["defrag", mode] => (format!("{THP}/defrag"), mode.to_string()),
        [name @ ("max_ptes_none" | "max_ptes_shared"), count] => {
            (format!("{THP}/khugepaged/{name}"), count.to_string())
        }
        ["overcommit", "never"] => (OVERCOMMIT.to_string(), "2".to_string()),
        // The model does not distinguish 0 and 1, so leave 1 unchanged.
        ["overcommit", _] if current(OVERCOMMIT).as_deref() == Some("2") => (OVERCOMMIT.to_string(), "0".to_string()),
        ["max_map_count", count] => ("/proc/sys/vm/max_map_count".to_string(), count.to_string()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value to restore is the configured pool size. If the default huge page size is 2 MiB,
    /// `/proc/sys/vm/nr_hugepages` shows it too.
    #[test]
    fn the_configured_pool_size_is_read() {
        let huge_page = text("/proc/meminfo").unwrap_or_default();
        if !huge_page.lines().any(|line| line.starts_with("Hugepagesize:") && line.ends_with(" 2048 kB")) {
            return eprintln!("skipped: no pool of 2 MiB pages, or not the usual one");
        }
        assert_eq!(current(&pool_file()), text("/proc/sys/vm/nr_hugepages"));
    }
}
