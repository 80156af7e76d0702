//! The process that puts modes back, and keeps others from changing them meanwhile.
//!
//! Modes belong to the whole machine, so whoever changes them locks [`LOCKED`] (`flock`, advisory), until they are put back. The
//! guard holds the lock, since it alone outlives a run that is killed.

use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

/// First argument of a guard process.
pub const GUARD_ARGUMENT: &str = "__hksim-rules-guard";

/// The folder that is locked: it is there on every Linux, lies in memory, and nobody can remove it.
pub const LOCKED: &str = "/sys/kernel/mm";

/// Answers of the guard: another holds the lock; it is held by this one; a value is known.
pub(crate) const WAITING: &str = "waiting";
pub(crate) const MINE: &str = "mine";
pub(crate) const KNOWN: &str = "known";

/// How often a lock is tried that another holds, in milliseconds. A call that waits for it could not see the input end.
const PAUSE_MS: libc::c_int = 50;

/// The `main` of a process started with [`GUARD_ARGUMENT`]: takes the lock, keeps old values, and puts them back when its input ends.
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
            // The oldest value is the one to put back.
            if !kept.iter().any(|(known, _)| known == path) {
                kept.push((path.into(), value.into()));
            }
        }
        answer(KNOWN);
    }
    let mut code = ExitCode::SUCCESS;
    for (path, value) in kept.iter().rev() {
        if let Err(why) = fs::write(path, value) {
            eprintln!("hksim: {path}: cannot be set back to `{value}`: {why}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn answer(word: &str) {
    let mut out = io::stdout().lock();
    // The other end may be gone; then the input ends too.
    let _ = writeln!(out, "{word}").and_then(|()| out.flush());
}

/// Waits for the lock, which is held as long as the file is open. `None` if the input ended first.
fn lock() -> io::Result<Option<File>> {
    let folder = File::open(LOCKED)?;
    let mut is_told = false;
    loop {
        // SAFETY: an open descriptor.
        if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Some(folder));
        }
        let why = io::Error::last_os_error();
        match why.kind() {
            io::ErrorKind::WouldBlock if is_told => {}
            io::ErrorKind::WouldBlock => answer(WAITING),
            io::ErrorKind::Interrupted => continue,
            _ => return Err(why),
        }
        is_told = true;
        if has_input_ended() {
            return Ok(None);
        }
    }
}

/// Waits a moment, or until there is nobody at the other end of the input.
fn has_input_ended() -> bool {
    let mut input = libc::pollfd { fd: libc::STDIN_FILENO, events: 0, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut input, 1, PAUSE_MS) > 0 && input.revents != 0 }
}
