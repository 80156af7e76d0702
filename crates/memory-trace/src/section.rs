//! Section headers: the fixed-size records before each chunk and before the footer.

use hksim_container::{is_sealed, seal, u32_at, u64_at};

/// Bytes of a section header.
pub(crate) const SECTION_BYTES: usize = 44;
/// Maximum number of events in a chunk.
pub(crate) const CHUNK_EVENTS_MAX: usize = 65_536;
/// Maximum size of a chunk, before and after compression.
pub(crate) const CHUNK_BYTES_MAX: u32 = 16 << 20;
/// Maximum size of the footer's JSON.
pub(crate) const FOOTER_BYTES_MAX: u32 = 1 << 20;

const CHUNK_TAG: [u8; 4] = *b"HMch";
const FOOTER_TAG: [u8; 4] = *b"HMft";

/// What follows a section header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A chunk of events, compressed with zstd.
    Chunk,
    /// The footer's JSON, which ends the file.
    Footer,
}

/// The header of a chunk or of the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub kind: Kind,
    /// Bytes that follow the header.
    pub payload_bytes: u32,
    /// Checksum of these bytes.
    pub payload_crc: u32,
    /// Bytes after decompression.
    pub plain_bytes: u32,
    /// Events of this section; 0 in the footer.
    pub events: u32,
    /// Events up to the end of this section.
    pub events_total: u64,
    /// Time of the last event.
    pub time_last_ns: u64,
}

impl Section {
    pub fn to_bytes(self) -> [u8; SECTION_BYTES] {
        let mut bytes = [0; SECTION_BYTES];
        bytes[0..4].copy_from_slice(match self.kind {
            Kind::Chunk => &CHUNK_TAG,
            Kind::Footer => &FOOTER_TAG,
        });
        let words = [self.payload_bytes, self.payload_crc, self.plain_bytes, self.events];
        for (place, word) in bytes[4..20].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[20..28].copy_from_slice(&self.events_total.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.time_last_ns.to_le_bytes());
        // 36..40 is reserved and 0.
        seal(&mut bytes);
        bytes
    }

    /// Parses a section header; `None` if the tag or the checksum is wrong.
    pub fn parse(bytes: &[u8; SECTION_BYTES]) -> Option<Self> {
        let kind = match [bytes[0], bytes[1], bytes[2], bytes[3]] {
            CHUNK_TAG => Kind::Chunk,
            FOOTER_TAG => Kind::Footer,
            _ => return None,
        };
        is_sealed(bytes).then(|| Self {
            kind,
            payload_bytes: u32_at(bytes, 4),
            payload_crc: u32_at(bytes, 8),
            plain_bytes: u32_at(bytes, 12),
            events: u32_at(bytes, 16),
            events_total: u64_at(bytes, 20),
            time_last_ns: u64_at(bytes, 28),
        })
    }

    /// Checks that the section can follow a file's first `events` events, so that a hostile file cannot claim more
    /// memory than the format allows.
    ///
    /// # Errors
    /// What is impossible.
    pub fn check_after(&self, events: u64) -> Result<(), &'static str> {
        match self.kind {
            Kind::Chunk if self.events == 0 || self.events as usize > CHUNK_EVENTS_MAX => {
                Err("a chunk has an impossible event count")
            }
            Kind::Chunk if self.payload_bytes.max(self.plain_bytes) > CHUNK_BYTES_MAX => {
                Err("a chunk is longer than the format allows")
            }
            Kind::Footer if self.events != 0 => Err("the footer has events"),
            Kind::Footer if self.payload_bytes > FOOTER_BYTES_MAX => Err("the footer is longer than the format allows"),
            _ if events.checked_add(u64::from(self.events)) != Some(self.events_total) => {
                Err("the event counts do not add up")
            }
            _ => Ok(()),
        }
    }
}
