//! The start of a file: the container's, with the trace's header.

use super::Version;
use crate::error::TraceError;
use crate::header::{Header, from_json};
use hksim_container::{JSON_BYTES_MAX, JsonError, Start, StartError, json_of};
use std::fs::File;
use std::path::Path;

/// The first bytes of every trace: a byte with which no text begins, the name, and line ends that a text-mode copy
/// would change.
pub const MAGIC: [u8; 8] = *b"\x89HKT\r\n\x1a\n";
/// The first bytes of a memory recording (`.hkm`).
const MEMORY_RECORDING_MAGIC: [u8; 8] = *b"\x89HKM\r\n\x1a\n";

/// The stored form of a file header.
pub(super) fn encode(path: &Path, header: &Header) -> Result<Vec<u8>, TraceError> {
    let json = to_json(path, "header", JSON_BYTES_MAX, header)?;
    Ok(hksim_container::encode(&MAGIC, Version::NEWEST.number(), &json))
}

/// The JSON of a part of the file, within the format's length limit.
pub(super) fn to_json(
    path: &Path,
    part: &'static str,
    limit_bytes: u32,
    value: &impl serde::Serialize,
) -> Result<Vec<u8>, TraceError> {
    json_of(value, limit_bytes).map_err(|why| match why {
        JsonError::Form(why) => TraceError::io(path, "write the JSON of", why),
        JsonError::TooLong(bytes) => TraceError::TooLong { path: path.to_path_buf(), part, bytes, limit_bytes },
    })
}

/// Reads the file header. Returns the format version, the header and the offset of its end.
pub(super) fn read(path: &Path, mut file: &File) -> Result<(Version, Header, u64), TraceError> {
    let not_a_trace = |why| TraceError::NotATrace { path: path.to_path_buf(), why };
    let bad_header = |why: String| TraceError::BadHeader { path: path.to_path_buf(), why };
    let known = Version::NEWEST.number();
    let start = Start::read(&mut file, &MAGIC, known).map_err(|why| match why {
        StartError::Io(why) => TraceError::io(path, "read", why),
        StartError::TooShort => not_a_trace("the file is shorter than 16 bytes"),
        StartError::OtherMagic(MEMORY_RECORDING_MAGIC) => TraceError::MemoryRecording { path: path.to_path_buf() },
        StartError::OtherMagic(_) => not_a_trace("it does not begin with the .hkt magic"),
        StartError::Newer(found) => TraceError::NewerVersion { path: path.to_path_buf(), found, known },
        StartError::Damaged(why) => bad_header(why),
    })?;
    let version = Version::of_number(start.version);
    let version = version.ok_or_else(|| bad_header(format!("version {} is not possible", start.version)))?;
    let header = from_json(&start.json).map_err(bad_header)?;
    Ok((version, header, start.end))
}
