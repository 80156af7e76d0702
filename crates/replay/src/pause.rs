//! Stops a replay, so that other programs can inspect its memory.

use std::io::Write;

/// Maximum bytes of the message.
const LINE_BYTES: usize = 256;

/// Stops this process until it receives SIGCONT. The message on standard error is written without allocating, because
/// the window is open.
pub(crate) fn pause(base: u64, events: u64) {
    let pid = std::process::id();
    let mut line = [0u8; LINE_BYTES];
    let mut rest = &mut line[..];
    // The buffer is large enough for any numbers.
    let _ = writeln!(
        rest,
        "hksim: stopped after event {events}: pid {pid}, base {base:#x}; continue it with `kill -CONT {pid}`"
    );
    let bytes = LINE_BYTES - rest.len();
    // SAFETY: the kernel reads `bytes` bytes of the line; raising a signal does not access memory.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), bytes);
        libc::raise(libc::SIGSTOP);
    }
}
