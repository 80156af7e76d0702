//! The words of the kernel's modes, as its files have them.

use crate::config::size_name;
use crate::{Defrag, PMD_ORDER, SizeMode, ThpConfig, ThpMode};

pub(crate) const THP_MODES: [(&str, ThpMode); 3] =
    [("always", ThpMode::Always), ("madvise", ThpMode::Madvise), ("never", ThpMode::Never)];

pub(crate) const SIZE_MODES: [(&str, SizeMode); 4] = [
    ("always", SizeMode::Always),
    ("madvise", SizeMode::Madvise),
    ("inherit", SizeMode::Inherit),
    ("never", SizeMode::Never),
];

pub(crate) const DEFRAG_MODES: [(&str, Defrag); 5] = [
    ("always", Defrag::Always),
    ("defer", Defrag::Defer),
    ("defer+madvise", Defrag::DeferMadvise),
    ("madvise", Defrag::Madvise),
    ("never", Defrag::Never),
];

/// A mode for each folio order, 0 to [`PMD_ORDER`], as [`ThpConfig::sizes`] has them.
pub type SizeModes = [SizeMode; PMD_ORDER + 1];

fn from_word<T: Copy>(words: &[(&str, T)], word: &str) -> Option<T> {
    words.iter().find(|(known, _)| *known == word).map(|(_, mode)| *mode)
}

fn word<T: PartialEq>(words: &[(&'static str, T)], mode: &T) -> &'static str {
    words.iter().find(|(_, known)| known == mode).map_or("", |(word, _)| word)
}

impl ThpMode {
    /// The words of all modes.
    pub const WORDS: [&'static str; 3] = [THP_MODES[0].0, THP_MODES[1].0, THP_MODES[2].0];

    /// The mode named by a word.
    pub fn from_word(word: &str) -> Option<Self> {
        from_word(&THP_MODES, word)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        word(&THP_MODES, &self)
    }
}

impl SizeMode {
    /// The words of all modes.
    pub const WORDS: [&'static str; 4] = [SIZE_MODES[0].0, SIZE_MODES[1].0, SIZE_MODES[2].0, SIZE_MODES[3].0];

    /// The mode named by a word.
    pub fn from_word(word: &str) -> Option<Self> {
        from_word(&SIZE_MODES, word)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        word(&SIZE_MODES, &self)
    }
}

impl Defrag {
    /// The words of all modes.
    pub const WORDS: [&'static str; 5] =
        [DEFRAG_MODES[0].0, DEFRAG_MODES[1].0, DEFRAG_MODES[2].0, DEFRAG_MODES[3].0, DEFRAG_MODES[4].0];

    /// The mode named by a word.
    pub fn from_word(word: &str) -> Option<Self> {
        from_word(&DEFRAG_MODES, word)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        word(&DEFRAG_MODES, &self)
    }
}

/// The kernel's modes after boot: sizes below 2M are off, 2M follows the global mode.
pub fn usual_sizes() -> SizeModes {
    ThpConfig::new(ThpMode::Madvise).sizes
}

/// The sizes whose mode differs from the one after boot: `64K=always,256K=madvise`.
///
/// ```
/// use hksim_linux_mm::{SizeMode, show_sizes, usual_sizes};
///
/// let mut sizes = usual_sizes();
/// assert_eq!(show_sizes(&sizes), "2M=inherit");
/// sizes[4] = SizeMode::Always;
/// assert_eq!(show_sizes(&sizes), "64K=always");
/// ```
pub fn show_sizes(sizes: &SizeModes) -> String {
    /// The smallest large folio of anonymous memory: 16K.
    const SMALLEST_ORDER: usize = 2;
    let usual = usual_sizes();
    let changed = (SMALLEST_ORDER..=PMD_ORDER).filter(|&order| sizes[order] != usual[order]);
    let words: Vec<String> = changed.map(|order| format!("{}={}", size_name(order), sizes[order].word())).collect();
    if words.is_empty() { format!("2M={}", usual[PMD_ORDER].word()) } else { words.join(",") }
}
