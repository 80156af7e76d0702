//! The guard process of a run: restores the machine's modes, and keeps other runs from changing them until then.
//!
//! Modes are machine-wide, so a run that changes them locks [`LOCKED`] (`flock`, advisory) until they are restored. The
//! guard holds the lock, because it outlives a killed run.

use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

/// First argument of a guard process.
pub const GUARD_ARGUMENT: &str = "__hksim-rules-guard";

/// The directory that is locked. It exists on every Linux, is in memory, and cannot be removed.
pub const LOCKED: &str = "/sys/kernel/mm";

/// Message of the guard: another process holds the lock.
pub(crate) const WAITING: &str = "waiting";
/// Message of the guard: it holds the lock.
pub(crate) const MINE: &str = "mine";
/// Message of the guard: it has stored a value to restore.
pub(crate) const KNOWN: &str = "known";

/// Interval between attempts to take the lock, in milliseconds. A blocking call could not notice the end of the input.
const PAUSE_MS: libc::c_int = 50;

/// The `main` of a process started with [`GUARD_ARGUMENT`]: takes the lock, stores old values, and restores them when
/// its input ends.
pub fn guard_main() -> ExitCode {
    let _lock = match lock() {
        Ok(Some(lock)) => lock,
        Ok(None) => return ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hksim: {LOCKED}: cannot lock: {why}");
            return ExitCode::FAILURE;
        }
    };
    answer(MINE);
    let mut kept: Vec<(String, String)> = Vec::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if let Some((path, value)) = line.split_once(' ') {
            // The first value stored for a file is the one to restore.
            if !kept.iter().any(|(known, _)| known == path) {
                kept.push((path.into(), value.into()));
            }
        }
        answer(KNOWN);
    }
    let mut code = ExitCode::SUCCESS;
    for (path, value) in kept.iter().rev() {
        if let Err(why) = fs::write(path, value) {
            eprintln!("hksim: {path}: cannot restore `{value}`: {why}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn answer(word: &str) {
    let mut out = io::stdout().lock();
    // If the other end is closed, the input ends too, and the guard finishes.
    let _ = writeln!(out, "{word}").and_then(|()| out.flush());
}

/// Waits for the lock, which is held while the returned file is open. `None` if the input ends first.
fn lock() -> io::Result<Option<File>> {
    let folder = File::open(LOCKED)?;
    let mut has_reported = false;
    loop {
        // SAFETY: an open descriptor.
        if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Some(folder));
        }
        let why = io::Error::last_os_error();
        match why.kind() {
            io::ErrorKind::WouldBlock if has_reported => {}
            io::ErrorKind::WouldBlock => answer(WAITING),
            io::ErrorKind::Interrupted => continue,
            _ => return Err(why),
        }
        has_reported = true;
        if has_input_ended() {
            return Ok(None);
        }
    }
}

/// Waits for [`PAUSE_MS`], or until the other end of the input is closed.
fn has_input_ended() -> bool {
    let mut input = libc::pollfd { fd: libc::STDIN_FILENO, events: 0, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut input, 1, PAUSE_MS) > 0 && input.revents != 0 }
}
