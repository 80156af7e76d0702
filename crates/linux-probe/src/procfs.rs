//! Reads files of `/proc/self` repeatedly without allocating.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use crate::resident::Resident;

const BUFFER_BYTES: usize = 64 << 10;
/// Bytes kept of each line of maps or smaps. The addresses or the figure are at its start.
const LINE_BYTES: usize = 64;

/// The first decimal number in a line.
fn first_number(line: &[u8]) -> Option<u64> {
    let digits = line.iter().skip_while(|byte| !byte.is_ascii_digit()).take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |sum, digit| Some(sum.unwrap_or(0) * 10 + u64::from(digit - b'0')))
}

/// The addresses at the start of a mapping's line: two hexadecimal numbers, `start-end `.
fn addresses_of(line: &[u8]) -> Option<Range<u64>> {
    let line = std::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    let (start, end) = line.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

/// A file of `/proc` that is read from its start each time.
#[derive(Debug)]
pub struct ProcText {
    file: File,
    buffer: Resident<u8>,
}

impl ProcText {
    /// Opens a file and reads it once, so that later reads cause no allocation and no fault.
    pub fn open(path: &str) -> io::Result<ProcText> {
        let mut text = ProcText { file: File::open(path)?, buffer: Resident::zeroed(BUFFER_BYTES)? };
        text.each_piece(|_| {})?;
        Ok(text)
    }

    fn each_piece(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        loop {
            match self.file.read(&mut self.buffer)? {
                0 => return Ok(()),
                bytes => each(&self.buffer[..bytes]),
            }
        }
    }

    /// The number after `key` at the start of a line, in the file's unit (kB for memory).
    pub fn number(&mut self, key: &str) -> Option<u64> {
        self.file.seek(SeekFrom::Start(0)).ok()?;
        let mut filled = 0;
        while filled < self.buffer.len() {
            match self.file.read(&mut self.buffer[filled..]).ok()? {
                0 => break,
                bytes => filled += bytes,
            }
        }
        let line =
            self.buffer[..filled].split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key.as_bytes()))?;
        first_number(line)
    }

    /// Whether the first bytes of the file contain `word`. Allocates nothing.
    pub fn holds(&mut self, word: &str) -> bool {
        let read = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.read(&mut self.buffer));
        read.is_ok_and(|bytes| self.buffer[..bytes].windows(word.len()).any(|bytes| bytes == word.as_bytes()))
    }

    /// Passes the first [`LINE_BYTES`] bytes of each line to `each`, even if the line spans reads. Allocates nothing.
    fn each_line(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let (mut line, mut filled) = ([0u8; LINE_BYTES], 0);
        self.each_piece(|piece| {
            for part in piece.split_inclusive(|&byte| byte == b'\n') {
                let text = part.strip_suffix(b"\n").unwrap_or(part);
                let bytes = text.len().min(LINE_BYTES - filled);
                line[filled..filled + bytes].copy_from_slice(&text[..bytes]);
                filled += bytes;
                if text.len() < part.len() {
                    each(&line[..filled]);
                    filled = 0;
                }
            }
        })?;
        if filled > 0 {
            each(&line[..filled]);
        }
        Ok(())
    }

    /// Sum of the numbers after `key` in `/proc/self/smaps`, over the mappings whose addresses satisfy `is_such`.
    pub fn sum_where(&mut self, key: &str, is_such: impl Fn(Range<u64>) -> bool) -> Option<u64> {
        let (mut sum, mut counts) = (0, false);
        self.each_line(|line| {
            if let Some(addresses) = addresses_of(line) {
                counts = is_such(addresses);
            } else if let Some(rest) = line.strip_prefix(key.as_bytes()).filter(|_| counts) {
                sum += first_number(rest).unwrap_or(0);
            }
        })
        .ok()?;
        Some(sum)
    }

    /// Number of lines of `/proc/self/maps` that begin at an address in `start..end`.
    pub fn maps_within(&mut self, start: u64, end: u64) -> Option<u64> {
        self.maps_where(|map| (start..end).contains(&map.start))
    }

    /// Number of lines of `/proc/self/maps` whose addresses satisfy `is_such`.
    pub fn maps_where(&mut self, is_such: impl Fn(Range<u64>) -> bool) -> Option<u64> {
        let mut count = 0;
        self.each_line(|line| count += u64::from(addresses_of(line).is_some_and(&is_such))).ok()?;
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this text. Each read returns at most `buffer_bytes`.
    fn text_of(text: &str, buffer_bytes: usize) -> ProcText {
        let path = std::env::temp_dir().join(format!("hksim-procfs-{}-{buffer_bytes}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        let file = File::open(&path).expect("the file");
        std::fs::remove_file(&path).expect("the file");
        ProcText { file, buffer: Resident::zeroed(buffer_bytes).expect("a few bytes") }
    }

    #[test]
    fn lines_are_complete_wherever_a_read_ends() {
        let long = "x".repeat(3 * LINE_BYTES);
        let text = format!(
            "1000-3000 rw-p 00000000 00:00 0 {long}\nLazyFree:  8 kB\nPss: 1 kB\n\n3000-4000 r--p\nLazyFree: 4 kB\n\
             ffffffffff600000-ffffffffff601000 --xp\nLazyFree: 16 kB"
        );
        for buffer_bytes in [1, 2, 3, 7, 61, 64, 65, 4096] {
            let mut lines = text_of(&text, buffer_bytes);
            let sum = |lines: &mut ProcText, from: u64| lines.sum_where("LazyFree:", |map| map.start >= from);
            assert_eq!([0, 0x2000, 0x3001].map(|from| sum(&mut lines, from)), [Some(28), Some(20), Some(16)]);
            assert_eq!(lines.maps_where(|map| map.end <= 0x4000), Some(2));
            assert_eq!(lines.maps_within(0x1000, 0x3000), Some(1));
            assert_eq!(lines.maps_where(|_| true), Some(3));
        }
    }
}
