//! What is varied between predictions: the kernel, and what the user can change about the process.

use hksim_linux_mm::KernelConfig;
use hksim_policy::units::{Size, parse_size};
use serde::{Deserialize, Serialize};

/// One prediction's kernel and edits of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The kernel.
    pub kernel: KernelConfig,
    /// Which mappings count as advised.
    pub advise: Advise,
    /// The program's own `prctl(PR_SET_THP_DISABLE)`.
    pub thp_prctl: ThpPrctl,
    /// The program's `MADV_FREE`.
    #[serde(default)]
    pub madv_free: MadvFree,
}

impl Setting {
    /// The program as it was recorded, under this kernel.
    pub fn recorded(kernel: KernelConfig) -> Setting {
        let (advise, thp_prctl, madv_free) = (Advise::Recorded, ThpPrctl::Recorded, MadvFree::Recorded);
        Setting { kernel, advise, thp_prctl, madv_free }
    }
}

/// `MADV_HUGEPAGE` in addition to the program's own advice, as `glibc.malloc.hugetlb=1` and options of other
/// allocators add it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advise {
    /// Only what the program advises itself.
    #[default]
    Recorded,
    /// Nothing: the program's own `MADV_HUGEPAGE` and `MADV_COLLAPSE` are left out.
    Nothing,
    /// All anonymous mappings, when they are created.
    All,
    /// The heap of brk.
    Heap,
    /// Anonymous mappings of at least this many bytes.
    AtLeastBytes(u64),
}

/// What the program's own `prctl(PR_SET_THP_DISABLE)` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThpPrctl {
    /// It applies.
    #[default]
    Recorded,
    /// It is left out.
    Ignored,
    /// Huge pages are off for the process from the start, whatever the program does.
    Disabled,
}

/// What the program's `MADV_FREE` does, with which allocators give memory back lazily.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MadvFree {
    /// It applies: pages stay until memory is short.
    #[default]
    Recorded,
    /// It drops pages at once, as `MADV_DONTNEED`. A recording does not show which of them were written again, so a
    /// prediction has a range of memory and faults.
    DontNeed,
}

const ADVISE_WORDS: [(&str, Advise); 4] =
    [("none", Advise::Recorded), ("drop", Advise::Nothing), ("all", Advise::All), ("heap", Advise::Heap)];

const PRCTL_WORDS: [(&str, ThpPrctl); 3] =
    [("recorded", ThpPrctl::Recorded), ("ignored", ThpPrctl::Ignored), ("disabled", ThpPrctl::Disabled)];

const MADV_FREE_WORDS: [(&str, MadvFree); 2] = [("recorded", MadvFree::Recorded), ("dontneed", MadvFree::DontNeed)];

impl Advise {
    /// Reads the word of `--advise`.
    ///
    /// # Errors
    /// Names the expected words.
    pub fn parse(word: &str) -> Result<Advise, String> {
        if let Some(size) = word.strip_prefix(">=") {
            return parse_size(size).map(Advise::AtLeastBytes).map_err(|why| why.to_string());
        }
        let known = ADVISE_WORDS.iter().find(|(known, _)| *known == word).map(|(_, advise)| *advise);
        known.ok_or_else(|| "expected none, all, heap, >=SIZE or drop".to_string())
    }

    /// The word of `--advise`.
    pub fn word(self) -> String {
        match self {
            Advise::AtLeastBytes(bytes) => format!(">={}", Size(bytes)),
            _ => ADVISE_WORDS.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word).to_string(),
        }
    }
}

impl ThpPrctl {
    /// Reads the word of `--thp-prctl`.
    ///
    /// # Errors
    /// Names the expected words.
    pub fn parse(word: &str) -> Result<ThpPrctl, String> {
        let known = PRCTL_WORDS.iter().find(|(known, _)| *known == word).map(|(_, prctl)| *prctl);
        known.ok_or_else(|| "expected recorded, ignored or disabled".to_string())
    }

    /// The word of `--thp-prctl`.
    pub fn word(self) -> &'static str {
        PRCTL_WORDS.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }
}

impl MadvFree {
    /// Reads the word of `--madv-free`.
    ///
    /// # Errors
    /// Names the expected words.
    pub fn parse(word: &str) -> Result<MadvFree, String> {
        let known = MADV_FREE_WORDS.iter().find(|(known, _)| *known == word).map(|(_, madv_free)| *madv_free);
        known.ok_or_else(|| "expected recorded or dontneed".to_string())
    }

    /// The word of `--madv-free`.
    pub fn word(self) -> &'static str {
        MADV_FREE_WORDS.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }
}
