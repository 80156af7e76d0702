//! What can be chosen: an allocator with settings, under a huge-page mode.

use std::collections::BTreeSet;

use hksim_linux_mm::ThpMode;

/// An allocator, and the settings that are tried with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The allocator as `--allocators` names it, with the settings that all its candidates have.
    pub word: String,
    /// Settings to try, such as `dirty_decay_ms=0`. Those of one axis exclude each other.
    pub axes: Vec<Vec<String>>,
}

/// An allocator with settings, under a huge-page mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The allocator with its settings, as `--allocators` names it.
    pub word: String,
    /// The huge-page mode; `None` for the machine's.
    pub mode: Option<ThpMode>,
}

impl Family {
    /// The allocator with more settings.
    pub(crate) fn with(&self, settings: &[&str], mode: Option<ThpMode>) -> Candidate {
        let joint = match (settings.is_empty(), self.word.contains(':')) {
            (true, _) => "",
            (false, true) => "+",
            (false, false) => ":",
        };
        Candidate { word: format!("{}{joint}{}", self.word, settings.join("+")), mode }
    }
}

impl Candidate {
    /// The huge-page mode as a flag.
    pub(crate) fn setting(&self) -> Option<String> {
        self.mode.map(|mode| format!("thp={}", mode.word()))
    }

    /// Changes from another candidate: another library, each setting, and the huge-page mode count one.
    pub(crate) fn changes_from(&self, other: &Candidate) -> u32 {
        let parts = |candidate: &'_ Candidate| -> (String, BTreeSet<String>) {
            let (kind, settings) = candidate.word.split_once(':').unwrap_or((&candidate.word, ""));
            (kind.to_string(), settings.split('+').filter(|one| !one.is_empty()).map(str::to_string).collect())
        };
        let ((kind, settings), (other_kind, others)) = (parts(self), parts(other));
        let settings_changed = match kind == other_kind {
            true => settings.symmetric_difference(&others).count(),
            false => 1 + settings.len(),
        };
        settings_changed as u32 + u32::from(self.mode != other.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_joined_and_changes_counted() {
        let family = |word: &str| Family { word: word.into(), axes: Vec::new() };
        let glibc = family("glibc").with(&[], None);
        let two = family("jemalloc").with(&["thp=always", "narenas=1"], None);
        assert_eq!(two.word, "jemalloc:thp=always+narenas=1");
        assert_eq!(family("jemalloc:narenas=1").with(&["thp=always"], None).word, "jemalloc:narenas=1+thp=always");
        assert_eq!(two.changes_from(&glibc), 3);
        let never = Candidate { mode: Some(ThpMode::Never), ..glibc.clone() };
        assert_eq!((never.changes_from(&glibc), glibc.changes_from(&glibc)), (1, 0));
        let one = family("glibc").with(&["arena_max=1"], None);
        assert_eq!(one.changes_from(&family("glibc").with(&["arena_max=2"], None)), 2, "one taken away, one added");
    }
}
