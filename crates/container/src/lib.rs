//! The container of recordings: what allocation traces (`.hkt`) and memory recordings (`.hkm`) have in common, and
//! nothing of what is in them.
//!
//! A file starts with a magic, a version and a header in JSON:
//!
//! | Bytes | Are |
//! |---|---|
//! | 8 | the magic of the format |
//! | 4 | its version, from 1 |
//! | 4 | length of the JSON, at most 1 MiB |
//! | length | the JSON |
//! | 4 | CRC-32 of all bytes before |
//!
//! Sections follow. Each has a header of a fixed size, whose last 4 bytes are the CRC-32 of the others
//! ([`seal`], [`is_sealed`]). Numbers are little-endian.
//!
//! ```
//! use hksim_container::{Start, encode};
//!
//! const MAGIC: [u8; 8] = *b"\x89APP\r\n\x1a\n";
//! let file = encode(&MAGIC, 1, br#"{"name":"x"}"#);
//! let start = Start::read(&mut &file[..], &MAGIC, 1)?;
//! assert_eq!((start.version, &start.json[..], start.end), (1, &br#"{"name":"x"}"#[..], file.len() as u64));
//! # Ok::<(), hksim_container::StartError>(())
//! ```

use std::fmt;
use std::io::{self, ErrorKind, Read};

use serde::Serialize;

/// Maximum size of a header's JSON.
pub const JSON_BYTES_MAX: u32 = 1 << 20;

/// Bytes of the magic, the version and the length of the JSON.
const FIXED_BYTES: usize = 16;
/// Bytes of a checksum.
const CRC_BYTES: usize = 4;

/// The start of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The version of the format: at least 1.
    pub version: u32,
    /// The header's JSON.
    pub json: Vec<u8>,
    /// Offset of the first section.
    pub end: u64,
}

/// Why a file does not start as the format says.
#[derive(Debug)]
pub enum StartError {
    /// The system failed.
    Io(io::Error),
    /// The file is shorter than any start.
    TooShort,
    /// The file starts with these bytes instead of the magic.
    OtherMagic([u8; 8]),
    /// The file has this version, which is newer than the newest known.
    Newer(u32),
    /// The header is damaged.
    Damaged(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Io(why) => why.fmt(f),
            StartError::TooShort => write!(f, "the file is shorter than {FIXED_BYTES} bytes"),
            StartError::OtherMagic(_) => f.write_str("the file does not begin with the magic of the format"),
            StartError::Newer(version) => write!(f, "version {version} is newer than the newest known"),
            StartError::Damaged(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

/// The stored form of a file's start.
pub fn encode(magic: &[u8; 8], version: u32, json: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
    bytes.extend_from_slice(json);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

impl Start {
    /// Reads the start of a file. Reads no byte after it.
    ///
    /// # Errors
    /// The file cannot be read, is of another format or of a newer version than `newest`, or its header is damaged.
    pub fn read(file: &mut impl Read, magic: &[u8; 8], newest: u32) -> Result<Start, StartError> {
        let mut bytes = vec![0; FIXED_BYTES];
        fill(file, &mut bytes, || StartError::TooShort)?;
        if bytes[..8] != magic[..] {
            let mut found = [0; 8];
            found.copy_from_slice(&bytes[..8]);
            return Err(StartError::OtherMagic(found));
        }
        let (version, json_bytes) = (u32_at(&bytes, 8), u32_at(&bytes, 12));
        if version > newest {
            return Err(StartError::Newer(version));
        }
        if version == 0 || json_bytes > JSON_BYTES_MAX {
            let why = format!("version {version} with {json_bytes} bytes of JSON is not possible");
            return Err(StartError::Damaged(why));
        }
        let damaged = |why: &str| StartError::Damaged(why.to_string());
        bytes.resize(FIXED_BYTES + json_bytes as usize + CRC_BYTES, 0);
        fill(file, &mut bytes[FIXED_BYTES..], || damaged("the file ends within the header"))?;
        let end = bytes.len() as u64;
        if !is_sealed(&bytes) {
            return Err(damaged("wrong checksum"));
        }
        bytes.truncate(bytes.len() - CRC_BYTES);
        Ok(Start { version, json: bytes.split_off(FIXED_BYTES), end })
    }
}

/// Reads as many bytes as `into` has.
fn fill(file: &mut impl Read, into: &mut [u8], at_end: impl Fn() -> StartError) -> Result<(), StartError> {
    file.read_exact(into).map_err(|why| match why.kind() {
        ErrorKind::UnexpectedEof => at_end(),
        _ => StartError::Io(why),
    })
}

/// Why a part of a file has no JSON.
#[derive(Debug)]
pub enum JsonError {
    /// The value has no JSON form.
    Form(io::Error),
    /// It needs this number of bytes, which is more than the limit.
    TooLong(usize),
}

/// The JSON of a part of a file, within the format's length limit.
///
/// # Errors
/// The value has no JSON form, or it is longer.
pub fn json_of(value: &impl Serialize, limit_bytes: u32) -> Result<Vec<u8>, JsonError> {
    let json = serde_json::to_vec(value).map_err(|why| JsonError::Form(io::Error::other(why)))?;
    if json.len() > limit_bytes as usize { Err(JsonError::TooLong(json.len())) } else { Ok(json) }
}

/// Writes the checksum of a section header into its last 4 bytes.
///
/// # Panics
/// The header has fewer than 4 bytes: a bug in the caller.
pub fn seal(header: &mut [u8]) {
    let (checked, crc) = header.split_at_mut(header.len() - CRC_BYTES);
    crc.copy_from_slice(&crc32fast::hash(checked).to_le_bytes());
}

/// Whether the last 4 bytes are the checksum of the others.
pub fn is_sealed(bytes: &[u8]) -> bool {
    let parts = bytes.len().checked_sub(CRC_BYTES).map(|checked| bytes.split_at(checked));
    parts.is_some_and(|(checked, crc)| u32_at(crc, 0) == crc32fast::hash(checked))
}

/// The little-endian number of 4 bytes at an offset.
///
/// # Panics
/// The bytes end before it: the caller has checked the length.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The little-endian number of 8 bytes at an offset.
///
/// # Panics
/// As [`u32_at`].
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 8] = *b"\x89TST\r\n\x1a\n";

    fn why(bytes: &[u8]) -> String {
        Start::read(&mut &bytes[..], &MAGIC, 2).expect_err("a damaged start").to_string()
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let file = encode(&MAGIC, 2, b"{\"a\":1}");
        let start = Start::read(&mut &[&file[..], b"more"].concat()[..], &MAGIC, 2).expect("a start");
        assert_eq!(start, Start { version: 2, json: b"{\"a\":1}".to_vec(), end: file.len() as u64 });
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x40;
            assert!(Start::read(&mut &changed[..], &MAGIC, 2).is_err(), "byte {at}");
            let cut = why(&file[..at]);
            assert_eq!(cut.contains("shorter than 16 bytes"), at < 16, "{at} bytes: {cut}");
        }
    }

    #[test]
    fn each_refusal_has_its_reason() {
        assert!(
            matches!(Start::read(&mut &encode(b"\x89OTHER\r\n", 1, b"{}")[..], &MAGIC, 2), Err(StartError::OtherMagic(found)) if found[1] == b'O')
        );
        assert!(matches!(Start::read(&mut &encode(&MAGIC, 3, b"{}")[..], &MAGIC, 2), Err(StartError::Newer(3))));
        assert!(why(&encode(&MAGIC, 0, b"{}")).contains("version 0"));
        let mut long = encode(&MAGIC, 1, b"{}");
        long[12..16].copy_from_slice(&(JSON_BYTES_MAX + 1).to_le_bytes());
        assert!(why(&long).contains("bytes of JSON is not possible"));
        assert!(matches!(json_of(&"12345", 6), Err(JsonError::TooLong(7))));
    }

    #[test]
    fn a_seal_holds_for_these_bytes_only() {
        let mut header = *b"HKch0123456789....";
        seal(&mut header);
        assert!(is_sealed(&header));
        header[5] ^= 1;
        assert!(!is_sealed(&header) && !is_sealed(b"abc"));
        assert_eq!(u64_at(&[1, 0, 0, 0, 2, 0, 0, 0], 0), 1 | 2 << 32);
    }
}
