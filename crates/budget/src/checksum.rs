//! Checksums of files that may be large.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// CRC-32 of a file, eight hexadecimal digits.
pub(crate) fn checksum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(format!("{:08x}", hasher.finalize())),
            bytes => hasher.update(&buffer[..bytes]),
        }
    }
}
