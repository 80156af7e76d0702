//! What is kept of the arena's contents, where somebody looks at them.

use super::kept_bytes::KeptBytes;
use super::nonzero::NonZero;

/// Contents, as closely as the design needs them.
pub(crate) enum Contents {
    /// The kernel looks whether pages are all zeros.
    NonZero(NonZero),
    /// The allocator reads what programs left, too.
    Bytes(KeptBytes),
}

impl Contents {
    /// Bytes `at..at + count` of the arena are all written with this one.
    pub(crate) fn write(&self, at: u64, count: u64, byte: u8) {
        match self {
            Contents::NonZero(bits) => bits.write(at, count, byte),
            Contents::Bytes(bytes) => bytes.write(at, count, byte),
        }
    }

    /// Bytes are copied from one place of the arena to another.
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

    /// The byte at `at`; `None` where only zero is told from the rest.
    pub(crate) fn byte_at(&self, at: u64) -> Option<u8> {
        match self {
            Contents::NonZero(_) => None,
            Contents::Bytes(bytes) => Some(bytes.byte_at(at)),
        }
    }
}
