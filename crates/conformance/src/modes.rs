//! Changing the machine's modes, and putting them back on every way out.
//!
//! A guard process, in a session of its own so that Ctrl-C does not reach it, is told every old value before it is changed.
//! When its input ends, because this process ended in whatever way, it writes the old values back. One guard at a time: a
//! second run would take the modes of the first for the machine's own ([`crate::guard`]).

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
    /// The guard process cannot be started or spoken to.
    #[error("cannot start the process that restores modes: {source}")]
    Guard {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file refuses.
    #[error("{path}: cannot set to `{value}`: {source}")]
    Refused {
        /// Which.
        path: String,
        /// To what.
        value: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel took less than was asked for.
    #[error("{path}: `{value}` was asked for, and `{got}` is there")]
    NotTaken {
        /// Which.
        path: String,
        /// What was asked for.
        value: String,
        /// What is there.
        got: String,
    },
}

/// Modes that were changed. They are put back when this goes, and also where this process is killed.
pub struct SetModes {
    guard: Child,
    guard_input: Option<ChildStdin>,
    guard_output: BufReader<ChildStdout>,
}

impl SetModes {
    /// Starts the guard. Nothing is changed yet. Where another process holds the machine's modes, `waiting` is called, and this
    /// returns when that has put them back.
    ///
    /// # Errors
    /// It does not start, or has no file to lock (no /sys).
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

    /// Sets everything that a script's header names.
    ///
    /// # Errors
    /// A file refuses, mostly for want of the right to write it. What was set before stays until this goes.
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
            // Pages in use or promised, by whomever, come on top of the free ones.
            Some(pages) => self.set(&pool_file(), &(pages + taken_hugetlb_pages()).to_string()),
            None => Ok(()),
        }
    }

    /// Raises the limit that holds where memory is never overcommitted, so that nobody on the machine meets it.
    fn raise_commit_limit(&mut self) -> Result<(), ModeError> {
        // In kilobytes if that is not 0, else in hundredths of the memory.
        let kilobytes = "/proc/sys/vm/overcommit_kbytes";
        match current(kilobytes).as_deref() {
            None | Some("0") => self.set("/proc/sys/vm/overcommit_ratio", "1000000"),
            Some(_) => self.set(kilobytes, &(1u64 << 40).to_string()),
        }
    }

    /// Lets khugepaged sleep, as far as it can be told to.
    ///
    /// # Errors
    /// A file refuses.
    pub fn pause_khugepaged(&mut self) -> Result<(), ModeError> {
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

    /// Tells the guard what to put back, and waits until it knows.
    fn register(&mut self, path: &str, value: &str) -> io::Result<()> {
        let guard_input = self.guard_input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(guard_input, "{path} {value}")?;
        guard_input.flush()?;
        if self.answer()? == KNOWN { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    /// A line of the guard's; empty where it has ended.
    fn answer(&mut self) -> io::Result<String> {
        let mut answer = String::new();
        self.guard_output.read_line(&mut answer)?;
        Ok(answer.trim().to_string())
    }
}

impl Drop for SetModes {
    fn drop(&mut self) {
        drop(self.guard_input.take());
        // It ends as soon as everything is put back.
        let _ = self.guard.wait();
    }
}

impl fmt::Debug for SetModes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SetModes(guard {})", self.guard.id())
    }
}

/// What a kernel does that lacks the mode's file: 2 MiB follows the global mode, and no other size is used.
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

/// Pages of the pool as somebody set it. Its file counts those too that the pool was made smaller by while they were in use
/// or promised, and writing that number would keep them for good.
fn pool_pages() -> Option<u64> {
    let surplus = number(&format!("{HUGETLB}/surplus_hugepages")).unwrap_or(0);
    Some(number(&pool_file())?.saturating_sub(surplus))
}

/// The file behind a header's line, and what to write there. `room` and `base` are no modes; `pool` takes more.
fn file_of(line: &str) -> Option<(String, String)> {
    let words: Vec<&str> = line.split(' ').collect();
    Some(match words[..] {
        ["thp", mode] => (format!("{THP}/enabled"), mode.to_string()),
        ["mthp", kilobytes, mode] => (format!("{THP}/hugepages-{kilobytes}kB/enabled"), mode.to_string()),
        ["zero_page", state] => (format!("{THP}/use_zero_page"), u8::from(state == "on").to_string()),
        ["defrag", mode] => (format!("{THP}/defrag"), mode.to_string()),
        ["max_ptes_none", count] => (format!("{THP}/khugepaged/max_ptes_none"), count.to_string()),
        ["overcommit", "never"] => (OVERCOMMIT.to_string(), "2".to_string()),
        // 1 is as good as 0.
        ["overcommit", _] if current(OVERCOMMIT).as_deref() == Some("2") => (OVERCOMMIT.to_string(), "0".to_string()),
        ["max_map_count", count] => ("/proc/sys/vm/max_map_count".to_string(), count.to_string()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is put back is what was set. `/proc/sys/vm` tells that where huge pages are of 2 MiB unless asked for otherwise.
    #[test]
    fn the_pool_that_was_set_is_known() {
        let huge_page = text("/proc/meminfo").unwrap_or_default();
        if !huge_page.lines().any(|line| line.starts_with("Hugepagesize:") && line.ends_with(" 2048 kB")) {
            return eprintln!("skipped: no pool of 2 MiB pages, or not the usual one");
        }
        assert_eq!(current(&pool_file()), text("/proc/sys/vm/nr_hugepages"));
    }
}
