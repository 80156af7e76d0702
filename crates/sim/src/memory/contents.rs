//! The contents of the arena.

use super::kept_bytes::KeptBytes;
use super::nonzero::NonZero;

/// Contents in the detail that the policy needs.
pub(crate) enum Contents {
    /// Only whether bytes are zero: the kernel inspects pages for zeros.
    NonZero(NonZero),
    /// Every byte: the allocator also reads what programs wrote.
    Bytes(KeptBytes),
}

impl Contents {
    /// Sets bytes `at..at + count` of the arena to `byte`.
    pub(crate) fn write(&self, at: u64, count: u64, byte: u8) {
        match self {
            Contents::NonZero(bits) => bits.write(at, count, byte),
            Contents::Bytes(bytes) => bytes.write(at, count, byte),
        }
    }

    /// Writes a number to bytes `at..at + 4`. `at` is a multiple of 4.
    pub(crate) fn write_number(&self, at: u64, number: u32) {
        match self {
            Contents::NonZero(bits) => bits.write_number(at, number),
            Contents::Bytes(bytes) => {
                (at..).zip(number.to_le_bytes()).for_each(|(place, byte)| bytes.write(place, 1, byte));
            }
        }
    }

    /// Writes two numbers to bytes `at..at + 8`. `at` is a multiple of 8.
    pub(crate) fn write_pair(&self, at: u64, first: u32, second: u32) {
        match self {
            Contents::NonZero(bits) => bits.write_pair(at, first, second),
            Contents::Bytes(_) => {
                self.write_number(at, first);
                self.write_number(at + 4, second);
            }
        }
    }

    /// Copies bytes within the arena.
    pub(crate) fn copy(&self, to: u64, from: u64, count: u64) {
        match self {
            Contents::NonZero(bits) => bits.copy(to, from, count),
            Contents::Bytes(bytes) => bytes.copy(to, from, count),
        }
    }

    /// Whether any byte of the page at `at` is not zero.
    pub(crate) fn holds_bytes(&self, at: u64) -> bool {
        match self {
            Contents::NonZero(bits) => bits.holds_bytes(at),
            Contents::Bytes(bytes) => bytes.holds_bytes(at),
        }
    }

    /// The byte at `at`; `None` if only zero and non-zero are distinguished.
    pub(crate) fn byte_at(&self, at: u64) -> Option<u8> {
        match self {
            Contents::NonZero(_) => None,
            Contents::Bytes(bytes) => Some(bytes.byte_at(at)),
        }
    }
}
