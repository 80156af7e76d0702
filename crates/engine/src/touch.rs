//! Rules for the application's accesses, which are assumed if the trace does not record them.

use hksim_trace::event::InitialTouch;
use hksim_trace::header::TouchSource;
use serde::{Deserialize, Serialize};

/// How the application touches its blocks. Every result is labelled with this rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TouchRule {
    /// No touches: only the allocator's own accesses remain.
    None,
    /// The first byte of each block is written at its allocation.
    First,
    /// Every byte is written once, at allocation (for a realloc, the grown tail).
    All,
    /// Every byte is read once, then written, at allocation: the most expensive case.
    ReadThenAll,
    /// Every byte is written once, right before the block is freed: the lowest residency if every byte is written.
    AllAtDeath,
    /// As recorded in the trace.
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

    /// The rule for a trace unless another one is asked for: recorded touches if it has any, else every byte once.
    pub fn usual(recorded: TouchSource) -> TouchRule {
        if recorded == TouchSource::Assumed { TouchRule::All } else { TouchRule::Recorded }
    }

    /// Where the touches of a run come from, for a trace with these touches.
    pub fn source(self, recorded: TouchSource) -> TouchSource {
        if self == TouchRule::Recorded { recorded } else { TouchSource::Assumed }
    }

    /// The value on the command line.
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

    /// Parses the value on the command line.
    pub fn from_word(word: &str) -> Option<TouchRule> {
        TouchRule::ALL.into_iter().find(|rule| rule.word() == word)
    }

    /// The touches at a block's allocation under this rule.
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
