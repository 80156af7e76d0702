//! A stop in the middle of a replay, for whoever wants to look at its memory from outside.

use std::io::Write;

/// Most bytes of the line that tells of the stop.
const LINE_BYTES: usize = 256;

/// Stops this process until somebody sends it SIGCONT. What to know is told on standard error, without allocating: the
/// window is open.
pub(crate) fn pause(base: u64, events: u64) {
    let pid = std::process::id();
    let mut line = [0u8; LINE_BYTES];
    let mut rest = &mut line[..];
    // The line is shorter than its buffer whatever the numbers are.
    let _ =
        writeln!(rest, "hksim: stopped after event {events}: pid {pid}, base {base:#x}; `kill -CONT {pid}` goes on");
    let bytes = LINE_BYTES - rest.len();
    // SAFETY: the kernel reads `bytes` bytes of the line; raising a signal has no memory effects.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), bytes);
        libc::raise(libc::SIGSTOP);
    }
}
