//! Kernel versions whose rules are known, and the choice of one for a running kernel.

use serde::{Deserialize, Serialize};

/// A version whose rules are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KernelVersion {
    /// Linux 5.15.
    #[serde(rename = "5.15")]
    V5_15,
    /// Linux 6.1.
    #[serde(rename = "6.1")]
    V6_1,
    /// Linux 6.8.
    #[serde(rename = "6.8")]
    V6_8,
    /// Linux 6.12.
    #[serde(rename = "6.12")]
    V6_12,
    /// Linux 6.14.
    #[serde(rename = "6.14")]
    V6_14,
    /// Linux 6.18.
    #[serde(rename = "6.18")]
    V6_18,
    /// Linux 7.2.
    #[serde(rename = "7.2")]
    V7_2,
}

impl KernelVersion {
    /// All known versions, oldest first.
    pub const ALL: [Self; 7] = [Self::V5_15, Self::V6_1, Self::V6_8, Self::V6_12, Self::V6_14, Self::V6_18, Self::V7_2];

    /// The newest known version.
    pub const NEWEST: Self = Self::V7_2;

    /// The version of predictions that name none. Its rules were measured without emulation.
    pub const USUAL: Self = Self::V6_18;

    /// Major and minor number.
    pub const fn numbers(self) -> (u32, u32) {
        match self {
            Self::V5_15 => (5, 15),
            Self::V6_1 => (6, 1),
            Self::V6_8 => (6, 8),
            Self::V6_12 => (6, 12),
            Self::V6_14 => (6, 14),
            Self::V6_18 => (6, 18),
            Self::V7_2 => (7, 2),
        }
    }

    /// The version as text: `6.18`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::V5_15 => "5.15",
            Self::V6_1 => "6.1",
            Self::V6_8 => "6.8",
            Self::V6_12 => "6.12",
            Self::V6_14 => "6.14",
            Self::V6_18 => "6.18",
            Self::V7_2 => "7.2",
        }
    }

    /// Pages of the vdso and its data (vvar), which exec maps as one block before mmap places anything. Measured on
    /// x86-64. `map_vdso` in arch/x86/entry/vdso/vma.c.
    pub const fn vdso_pages(self) -> u64 {
        match self {
            Self::V5_15 | Self::V6_1 | Self::V6_8 | Self::V6_12 | Self::V6_14 => 6,
            Self::V6_18 | Self::V7_2 => 8,
        }
    }

    /// Parses text such as `6.18`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.word() == word)
    }

    /// The newest known version that is not newer than a kernel's release (`6.18.44-generic`), and how well it fits.
    /// `None` for a release older than all known versions, or for text that is not a release.
    pub fn nearest(release: &str) -> Option<(Self, Fit)> {
        let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().ok());
        let numbers = (parts.next()??, parts.next()??);
        let version = Self::ALL.into_iter().rev().find(|version| version.numbers() <= numbers)?;
        let fit = if version.numbers() == numbers {
            Fit::Same
        } else if version == Self::NEWEST {
            Fit::NewerThanAll
        } else {
            Fit::Between
        };
        Some((version, fit))
    }
}

/// How a known version relates to the running kernel it is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The same version.
    Same,
    /// The kernel is between this version and the next known one.
    Between,
    /// The kernel is newer than every known version.
    NewerThanAll,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_gets_the_nearest_known_version_that_is_not_newer() {
        let nearest = |release| KernelVersion::nearest(release).map(|(version, fit)| (version.word(), fit));
        assert_eq!(nearest("6.18.44-fc-v669"), Some(("6.18", Fit::Same)));
        assert_eq!(nearest("5.15.0-91-generic"), Some(("5.15", Fit::Same)));
        assert_eq!(nearest("6.6.87"), Some(("6.1", Fit::Between)));
        assert_eq!(nearest("7.1.3"), Some(("6.18", Fit::Between)));
        assert_eq!(nearest("7.2.13+deb14-cloud-amd64"), Some(("7.2", Fit::Same)));
        assert_eq!(nearest("7.3-rc1"), Some(("7.2", Fit::NewerThanAll)));
        assert_eq!(nearest("5.10.1"), None);
        assert_eq!(nearest("unknown"), None);
    }
}
