//! What is assumed of the application's accesses where the trace does not know them.

use hksim_trace::event::Birth;
use serde::{Deserialize, Serialize};

/// How the application touches its blocks. A label on every result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TouchRule {
    /// Not at all: what remains is the allocator's own doing.
    None,
    /// The first byte of each block is written at its allocation.
    First,
    /// Every byte is written once, at allocation (of a realloc: the grown tail).
    All,
    /// Every byte is read once, then written, at allocation: the dearest case.
    ReadThenAll,
    /// As the trace says.
    Recorded,
}

impl TouchRule {
    /// What is done at a block's birth under this rule.
    #[inline(always)]
    pub(crate) fn birth(self, recorded: Birth) -> Birth {
        match self {
            TouchRule::None => Birth::None,
            TouchRule::First => Birth::FirstByte,
            TouchRule::All | TouchRule::ReadThenAll => Birth::All,
            TouchRule::Recorded => recorded,
        }
    }
}
