//! What is assumed of the application's accesses where the trace does not know them.

use hksim_trace::event::InitialTouch;
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
    /// Every byte is written once, right before the block is freed: the lowest residency that writes everything.
    AllAtDeath,
    /// As the trace says.
    Recorded,
}

impl TouchRule {
    /// Every rule, in the order of the help text.
    pub const ALL: [TouchRule; 6] = [
        TouchRule::None,
        TouchRule::First,
        TouchRule::All,
        TouchRule::ReadThenAll,
        TouchRule::AllAtDeath,
        TouchRule::Recorded,
    ];

    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            TouchRule::None => "none",
            TouchRule::First => "first",
            TouchRule::All => "all",
            TouchRule::ReadThenAll => "read-then-all",
            TouchRule::AllAtDeath => "all-at-death",
            TouchRule::Recorded => "recorded",
        }
    }

    /// The rule of that word.
    pub fn from_word(word: &str) -> Option<TouchRule> {
        TouchRule::ALL.into_iter().find(|rule| rule.word() == word)
    }

    /// What is done at a block's birth under this rule.
    #[inline(always)]
    pub fn initial_touch(self, recorded: InitialTouch) -> InitialTouch {
        match self {
            TouchRule::None | TouchRule::AllAtDeath => InitialTouch::None,
            TouchRule::First => InitialTouch::FirstByte,
            TouchRule::All => InitialTouch::All,
            TouchRule::ReadThenAll => InitialTouch::ReadThenWrite,
            TouchRule::Recorded => recorded,
        }
    }
}
