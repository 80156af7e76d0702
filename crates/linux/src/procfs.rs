//! `/proc/self`, read again and again without allocating.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use crate::resident::Resident;

const BUFFER_BYTES: usize = 64 << 10;
/// What is kept of a line of smaps: its addresses or its figure stand first.
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
    /// Opens a file and reads it once, so that later reads find everything in place.
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

    /// The number behind `key` at the start of a line, in the file's unit (of memory: kB).
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

    /// Adds up the numbers behind `key` in `/proc/self/smaps`, over the mappings whose addresses are such.
    pub fn sum_where(&mut self, key: &str, is_such: impl Fn(Range<u64>) -> bool) -> Option<u64> {
        let (mut line, mut length) = ([0u8; LINE_BYTES], 0);
        let (mut sum, mut counts) = (0, false);
        self.each_piece(|piece| {
            for &byte in piece {
                if byte != b'\n' {
                    if let Some(place) = line.get_mut(length) {
                        (*place, length) = (byte, length + 1);
                    }
                    continue;
                }
                let text = &line[..length];
                length = 0;
                if let Some(addresses) = addresses_of(text) {
                    counts = is_such(addresses);
                } else if let Some(rest) = text.strip_prefix(key.as_bytes()).filter(|_| counts) {
                    sum += first_number(rest).unwrap_or(0);
                }
            }
        })
        .ok()?;
        Some(sum)
    }

    /// Lines of `/proc/self/maps` that begin at an address in `start..end`.
    pub fn maps_within(&mut self, start: u64, end: u64) -> Option<u64> {
        self.maps_where(|map| (start..end).contains(&map.start))
    }

    /// Lines of `/proc/self/maps` whose addresses are such.
    pub fn maps_where(&mut self, is_such: impl Fn(Range<u64>) -> bool) -> Option<u64> {
        let (mut count, mut addresses, mut at) = (0, [0u64; 2], 0);
        self.each_piece(|piece| {
            for &byte in piece {
                match (addresses.get_mut(at), (byte as char).to_digit(16)) {
                    (Some(address), Some(digit)) => *address = *address << 4 | u64::from(digit),
                    (Some(_), None) => {
                        at += 1;
                        count += u64::from(at == addresses.len() && is_such(addresses[0]..addresses[1]));
                    }
                    (None, _) if byte == b'\n' => (addresses, at) = ([0; 2], 0),
                    (None, _) => {}
                }
            }
        })
        .ok()?;
        Some(count)
    }
}
