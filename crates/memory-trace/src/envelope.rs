//! The start of a file: magic, version and the JSON header.

use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::error::MemoryTraceError;
use crate::header::Header;

/// The first bytes of every recording: a byte with which no text begins, the name, and line ends that a text-mode copy
/// would change.
pub const MAGIC: [u8; 8] = *b"\x89HKM\r\n\x1a\n";

/// The version of recordings without call stacks.
const VERSION_PLAIN: u32 = 1;
/// The version of recordings with call stacks, and the newest that can be read.
const VERSION: u32 = 2;
/// Bytes of the magic, the version and the length of the JSON.
const FIXED_BYTES: usize = 16;
/// Maximum size of the header's JSON.
const JSON_BYTES_MAX: u32 = 1 << 20;

/// The stored form of a header.
pub(crate) fn encode(path: &Path, header: &Header) -> Result<Vec<u8>, MemoryTraceError> {
    let json = to_json(path, "header", JSON_BYTES_MAX, header)?;
    let mut bytes = MAGIC.to_vec();
    let version = if header.stack_depth.is_some() { VERSION } else { VERSION_PLAIN };
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&json);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

/// The JSON of a part of the file, within the format's length limit.
pub(crate) fn to_json(
    path: &Path,
    part: &'static str,
    limit_bytes: u32,
    value: &impl serde::Serialize,
) -> Result<Vec<u8>, MemoryTraceError> {
    let json = serde_json::to_vec(value)
        .map_err(|why| MemoryTraceError::io(path, "write the JSON of", std::io::Error::other(why)))?;
    if json.len() > limit_bytes as usize {
        return Err(MemoryTraceError::TooLong { path: path.to_path_buf(), part, bytes: json.len(), limit_bytes });
    }
    Ok(json)
}

/// Reads the start of a file. Returns the header and the offset of its end.
pub(crate) fn read(path: &Path, file: &mut impl Read) -> Result<(Header, u64), MemoryTraceError> {
    let bad_header = |why: String| MemoryTraceError::BadHeader { path: path.to_path_buf(), why };
    let mut bytes = vec![0; FIXED_BYTES];
    file.read_exact(&mut bytes).map_err(|why| match why.kind() {
        ErrorKind::UnexpectedEof => {
            MemoryTraceError::NotARecording { path: path.to_path_buf(), why: "the file is shorter than 16 bytes" }
        }
        _ => MemoryTraceError::io(path, "read", why),
    })?;
    if bytes[..8] != MAGIC {
        let why = "it does not begin with the .hkm magic";
        return Err(MemoryTraceError::NotARecording { path: path.to_path_buf(), why });
    }
    let (found, json_bytes) = (u32_at(&bytes, 8), u32_at(&bytes, 12));
    if found > VERSION {
        return Err(MemoryTraceError::NewerVersion { path: path.to_path_buf(), found, known: VERSION });
    }
    if found == 0 || json_bytes > JSON_BYTES_MAX {
        return Err(bad_header(format!("version {found} with {json_bytes} bytes of JSON is not possible")));
    }
    bytes.resize(FIXED_BYTES + json_bytes as usize + 4, 0);
    file.read_exact(&mut bytes[FIXED_BYTES..]).map_err(|why| match why.kind() {
        ErrorKind::UnexpectedEof => bad_header("the file ends within it".to_string()),
        _ => MemoryTraceError::io(path, "read", why),
    })?;
    let (stored, crc) = bytes.split_at(bytes.len() - 4);
    if u32_at(crc, 0) != crc32fast::hash(stored) {
        return Err(bad_header("wrong checksum".to_string()));
    }
    let header: Header = serde_json::from_slice(&stored[FIXED_BYTES..]).map_err(|why| bad_header(why.to_string()))?;
    if header.stack_depth.is_some() != (found == VERSION) {
        return Err(bad_header(format!("version {found} and the field stack_depth contradict each other")));
    }
    Ok((header, bytes.len() as u64))
}

/// The little-endian word at an offset. The caller has checked the length.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
