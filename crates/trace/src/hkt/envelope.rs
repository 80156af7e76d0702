//! The start of a file: magic, version and the JSON header.

use super::Version;
use super::chunk::u32_at;
use crate::error::TraceError;
use crate::header::{Header, from_json};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The first bytes of every trace: a byte with which no text begins, the name, and line ends that a text-mode copy
/// would change.
pub const MAGIC: [u8; 8] = *b"\x89HKT\r\n\x1a\n";
/// The first bytes of a memory recording (`.hkm`).
const MEMORY_RECORDING_MAGIC: [u8; 8] = *b"\x89HKM\r\n\x1a\n";

/// Bytes of the magic, the version and the length of the JSON.
const FIXED_BYTES: usize = 16;

/// Maximum size of the header's JSON.
const JSON_BYTES_MAX: u32 = 1 << 20;

/// The stored form of a file header.
pub(super) fn encode(path: &Path, header: &Header) -> Result<Vec<u8>, TraceError> {
    let json = to_json(path, "header", JSON_BYTES_MAX, header)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&Version::NEWEST.number().to_le_bytes());
    bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&json);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

/// The JSON of a part of the file, within the format's length limit.
pub(super) fn to_json(
    path: &Path,
    part: &'static str,
    limit_bytes: u32,
    value: &impl serde::Serialize,
) -> Result<Vec<u8>, TraceError> {
    let json = serde_json::to_vec(value)
        .map_err(|why| TraceError::io(path, "write the JSON of", std::io::Error::other(why)))?;
    if json.len() > limit_bytes as usize {
        return Err(TraceError::TooLong { path: path.to_path_buf(), part, bytes: json.len(), limit_bytes });
    }
    Ok(json)
}

/// Reads the file header. Returns the format version, the header and the offset of its end.
pub(super) fn read(path: &Path, file: &File) -> Result<(Version, Header, u64), TraceError> {
    let not_a_trace = |why| TraceError::NotATrace { path: path.to_path_buf(), why };
    let bad_header = |why: String| TraceError::BadHeader { path: path.to_path_buf(), why };
    let mut bytes = vec![0; FIXED_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => (),
        Err(why) if why.kind() == ErrorKind::UnexpectedEof => {
            return Err(not_a_trace("the file is shorter than 16 bytes"));
        }
        Err(why) => return Err(TraceError::io(path, "read", why)),
    }
    if bytes[..8] == MEMORY_RECORDING_MAGIC {
        return Err(TraceError::MemoryRecording { path: path.to_path_buf() });
    }
    if bytes[..8] != MAGIC {
        return Err(not_a_trace("it does not begin with the .hkt magic"));
    }
    let (number, json_bytes) = (u32_at(&bytes, 8), u32_at(&bytes, 12));
    let known = Version::NEWEST.number();
    if number > known {
        return Err(TraceError::NewerVersion { path: path.to_path_buf(), found: number, known });
    }
    let version = Version::of_number(number).filter(|_| json_bytes <= JSON_BYTES_MAX);
    let version = version
        .ok_or_else(|| bad_header(format!("version {number} with {json_bytes} bytes of JSON is not possible")))?;
    let rest_bytes = json_bytes as usize + 4;
    bytes.resize(FIXED_BYTES + rest_bytes, 0);
    match file.read_exact_at(&mut bytes[FIXED_BYTES..], FIXED_BYTES as u64) {
        Ok(()) => (),
        Err(why) if why.kind() == ErrorKind::UnexpectedEof => {
            return Err(bad_header("the file ends within the header".into()));
        }
        Err(why) => return Err(TraceError::io(path, "read", why)),
    }
    let (stored, crc) = bytes.split_at(bytes.len() - 4);
    if u32_at(crc, 0) != crc32fast::hash(stored) {
        return Err(bad_header("wrong checksum".into()));
    }
    let header = from_json(&stored[FIXED_BYTES..]).map_err(bad_header)?;
    Ok((version, header, bytes.len() as u64))
}
