//! The start of a file: the container's, with the recording's header.

use std::io::Read;
use std::path::Path;

use hksim_container::{JSON_BYTES_MAX, JsonError, Start, StartError, json_of};

use crate::error::MemoryTraceError;
use crate::header::Header;

/// The first bytes of every recording: a byte with which no text begins, the name, and line ends that a text-mode copy
/// would change.
pub const MAGIC: [u8; 8] = *b"\x89HKM\r\n\x1a\n";

/// The version of recordings without call stacks.
const VERSION_PLAIN: u32 = 1;
/// The version of recordings with call stacks.
const VERSION_STACKS: u32 = 2;
/// The version of recordings that begin in the middle of a process, with or without call stacks, and the newest that
/// can be read.
const VERSION: u32 = 3;

/// The version of a recording with this header.
fn version_of(header: &Header) -> u32 {
    match (header.beginning.is_attached(), header.stack_depth) {
        (true, _) => VERSION,
        (false, Some(_)) => VERSION_STACKS,
        (false, None) => VERSION_PLAIN,
    }
}

/// The stored form of a header.
pub(crate) fn encode(path: &Path, header: &Header) -> Result<Vec<u8>, MemoryTraceError> {
    let json = to_json(path, "header", JSON_BYTES_MAX, header)?;
    Ok(hksim_container::encode(&MAGIC, version_of(header), &json))
}

/// The JSON of a part of the file, within the format's length limit.
pub(crate) fn to_json(
    path: &Path,
    part: &'static str,
    limit_bytes: u32,
    value: &impl serde::Serialize,
) -> Result<Vec<u8>, MemoryTraceError> {
    json_of(value, limit_bytes).map_err(|why| match why {
        JsonError::Form(why) => MemoryTraceError::io(path, "write the JSON of", why),
        JsonError::TooLong(bytes) => MemoryTraceError::TooLong { path: path.to_path_buf(), part, bytes, limit_bytes },
    })
}

/// Reads the start of a file. Returns the header and the offset of its end.
pub(crate) fn read(path: &Path, file: &mut impl Read) -> Result<(Header, u64), MemoryTraceError> {
    let bad_header = |why: String| MemoryTraceError::BadHeader { path: path.to_path_buf(), why };
    let not_a_recording = |why| MemoryTraceError::NotARecording { path: path.to_path_buf(), why };
    let start = Start::read(file, &MAGIC, VERSION).map_err(|why| match why {
        StartError::Io(why) => MemoryTraceError::io(path, "read", why),
        StartError::TooShort => not_a_recording("the file is shorter than 16 bytes"),
        StartError::OtherMagic(_) => not_a_recording("it does not begin with the .hkm magic"),
        StartError::Newer(found) => MemoryTraceError::NewerVersion { path: path.to_path_buf(), found, known: VERSION },
        StartError::Damaged(why) => bad_header(why),
    })?;
    let header: Header = serde_json::from_slice(&start.json).map_err(|why| bad_header(why.to_string()))?;
    if version_of(&header) != start.version {
        let why = format!("version {} and the fields beginning and stack_depth contradict each other", start.version);
        return Err(bad_header(why));
    }
    Ok((header, start.end))
}
