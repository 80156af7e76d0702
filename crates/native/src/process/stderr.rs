//! Messages on standard error, written without allocating.

use std::fmt::{self, Write};

/// One line of text, stored inline. Text that does not fit is cut off.
pub(super) struct Line {
    bytes: [u8; 400],
    used: usize,
}

impl Line {
    /// Formats a line.
    pub(super) fn new(words: fmt::Arguments<'_>) -> Line {
        let mut line = Line { bytes: [0; 400], used: 0 };
        // Writing to the buffer never fails.
        let _ = writeln!(line, "hksim: {words}");
        line
    }

    /// Writes the line to standard error with one call.
    pub(super) fn write(&self) {
        // SAFETY: the buffer has `used` bytes. An error could not be reported anywhere.
        unsafe { libc::write(2, self.bytes.as_ptr().cast(), self.used) };
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.used..];
        let fits = text.len().min(room.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.used += fits;
        Ok(())
    }
}
