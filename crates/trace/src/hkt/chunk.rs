//! Section headers: the fixed-size records before each chunk and before the footer.

use super::CHUNK_EVENTS_MAX;
use hksim_container::{is_sealed, seal, u32_at, u64_at};

/// Bytes of a section header.
pub(super) const SECTION_BYTES: usize = 48;

/// Maximum size of a chunk's payload: all columns at full width and incompressible, rounded up.
pub(super) const PAYLOAD_BYTES_MAX: u32 = 1 << 20;

/// Maximum size of the footer's JSON.
pub(super) const FOOTER_BYTES_MAX: u32 = 1 << 26;

const CHUNK_TAG: [u8; 4] = *b"HKch";
const FOOTER_TAG: [u8; 4] = *b"HKft";

/// What follows a section header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A chunk of events.
    Chunk,
    /// The footer, which ends the file.
    Footer,
}

/// The header of a chunk or of the footer. Totals include this section, so the last section has the totals of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) kind: Kind,
    /// Bytes that follow the header.
    pub(super) payload_bytes: u32,
    /// Checksum of these bytes.
    pub(super) payload_crc: u32,
    /// Events of this section; 0 in the footer.
    pub(super) events: u32,
    /// Events up to the end of this section.
    pub(super) events_total: u64,
    /// Peak number of live objects up to the end of this section.
    pub(super) objects_peak: u32,
    /// Threads seen up to the end of this section.
    pub(super) threads: u32,
    /// Time of the last event.
    pub(super) time_last_ns: u64,
}

impl Section {
    pub(super) fn to_bytes(self) -> [u8; SECTION_BYTES] {
        let mut bytes = [0; SECTION_BYTES];
        bytes[0..4].copy_from_slice(match self.kind {
            Kind::Chunk => &CHUNK_TAG,
            Kind::Footer => &FOOTER_TAG,
        });
        bytes[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.events.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.events_total.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.objects_peak.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.threads.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.time_last_ns.to_le_bytes());
        // 40..44 is reserved and 0.
        seal(&mut bytes);
        bytes
    }

    /// Parses a section header; `None` if the tag or the checksum is wrong.
    pub(super) fn parse(bytes: &[u8; SECTION_BYTES]) -> Option<Self> {
        let kind = match [bytes[0], bytes[1], bytes[2], bytes[3]] {
            CHUNK_TAG => Kind::Chunk,
            FOOTER_TAG => Kind::Footer,
            _ => return None,
        };
        if !is_sealed(bytes) {
            return None;
        }
        Some(Section {
            kind,
            payload_bytes: u32_at(bytes, 4),
            payload_crc: u32_at(bytes, 8),
            events: u32_at(bytes, 12),
            events_total: u64_at(bytes, 16),
            objects_peak: u32_at(bytes, 24),
            threads: u32_at(bytes, 28),
            time_last_ns: u64_at(bytes, 32),
        })
    }

    /// Checks that the section can follow `before`. The error says why it cannot.
    ///
    /// Tables are sized by the totals. These checks keep the tables of a hostile file in proportion to the file's
    /// length.
    pub(super) fn check_after(&self, before: &Section) -> Result<(), &'static str> {
        let events = self.events;
        match self.kind {
            Kind::Chunk if events == 0 || events as usize > CHUNK_EVENTS_MAX => {
                return Err("a chunk has an impossible event count");
            }
            Kind::Chunk if self.payload_bytes > PAYLOAD_BYTES_MAX => {
                return Err("a chunk is longer than the format allows");
            }
            Kind::Footer if events != 0 => return Err("the footer has events"),
            Kind::Footer if self.payload_bytes > FOOTER_BYTES_MAX => {
                return Err("the footer is longer than the format allows");
            }
            _ => (),
        }
        let grows_at_most = |now: u32, then: u32| now >= then && now - then <= events;
        if before.events_total.checked_add(events as u64) != Some(self.events_total) {
            return Err("the event counts do not add up");
        }
        if !grows_at_most(self.objects_peak, before.objects_peak) || !grows_at_most(self.threads, before.threads) {
            return Err("objects or threads do not add up");
        }
        if self.time_last_ns < before.time_last_ns {
            return Err("the time decreases");
        }
        Ok(())
    }

    /// The totals before the first section of a file.
    pub(super) fn start() -> Self {
        Section {
            kind: Kind::Chunk,
            payload_bytes: 0,
            payload_crc: 0,
            events: 0,
            events_total: 0,
            objects_peak: 0,
            threads: 0,
            time_last_ns: 0,
        }
    }
}
