//! Words on standard error, written without allocating.

use std::fmt::{self, Write};

/// One line of text in place; what does not fit is cut.
pub(super) struct Line {
    bytes: [u8; 400],
    used: usize,
}

impl Line {
    /// A line of these words.
    pub(super) fn new(words: fmt::Arguments<'_>) -> Line {
        let mut line = Line { bytes: [0; 400], used: 0 };
        // Cutting is no error.
        let _ = writeln!(line, "hksim: {words}");
        line
    }

    /// Writes it to standard error with one call.
    pub(super) fn write(&self) {
        // SAFETY: the buffer holds that many bytes. There is nobody to tell of an error.
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
