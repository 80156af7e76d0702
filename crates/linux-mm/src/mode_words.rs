//! The words of modes, as the kernel's files, page-op scripts and flags have them.

use super::config::{Defrag, Overcommit, SizeMode, ThpMode};
use super::khugepaged::KhugepagedWork;

/// Gives a mode its words.
macro_rules! words {
    ($mode:ident, $count:literal, $($word:literal => $value:ident),+) => {
        impl $mode {
            /// Every mode, by its word.
            pub const WORDS: [(&'static str, $mode); $count] = [$(($word, $mode::$value)),+];

            /// The word of this mode.
            pub fn word(self) -> &'static str {
                match self {
                    $($mode::$value => $word),+
                }
            }

            /// The mode with this word.
            pub fn from_word(word: &str) -> Option<$mode> {
                Self::WORDS.iter().find(|(known, _)| *known == word).map(|&(_, mode)| mode)
            }
        }
    };
}

words!(ThpMode, 3, "always" => Always, "madvise" => Madvise, "never" => Never);
words!(SizeMode, 4, "always" => Always, "madvise" => Madvise, "inherit" => Inherit, "never" => Never);
words!(Defrag, 5,
    "always" => Always, "defer" => Defer, "defer+madvise" => DeferMadvise, "madvise" => Madvise, "never" => Never);
words!(Overcommit, 2, "allowed" => Allowed, "never" => Never);
words!(KhugepagedWork, 3, "none" => None, "settled" => Settled, "bound" => Bound);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_names_its_mode() {
        assert!(
            ThpMode::WORDS.iter().all(|&(word, mode)| mode.word() == word && ThpMode::from_word(word) == Some(mode))
        );
        assert!(
            SizeMode::WORDS.iter().all(|&(word, mode)| mode.word() == word && SizeMode::from_word(word) == Some(mode))
        );
        assert!(Defrag::WORDS.iter().all(|&(word, mode)| mode.word() == word && Defrag::from_word(word) == Some(mode)));
        assert_eq!(
            (ThpMode::from_word("inherit"), SizeMode::from_word("defer"), Defrag::from_word("")),
            (None, None, None)
        );
    }
}
