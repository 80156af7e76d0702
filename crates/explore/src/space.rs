//! The space that `advise` searches if no flags are given.

use hksim_policy::Policy;
use hksim_policy::flags::Flag;

use crate::search::{Axis, Space};

/// The flags to vary and their words. Left out are flags that a design cannot choose freely: huge pages that need a
/// pool (`hugetlb`) or a machine's mode (`system`), separate mappings whose cost depends on addresses, and headers, which
/// are a matter of safety. The order of reuse changes little (docs/lab/preset-default.md), so it has few words.
const WORDS: [(&str, &[&str]); 15] = [
    ("superslab", &["256K", "512K", "1M", "2M", "4M", "8M", "16M", "32M"]),
    ("slab", &["16K", "32K", "64K", "128K", "256K"]),
    ("huge", &["never", "thp", "mthp-64K"]),
    ("prefault", &["off", "populate", "populate-write"]),
    ("prefault-scope", &["superslab", "slab"]),
    ("cache", &["0", "1", "4", "16", "64"]),
    ("purge", &["none", "dontneed", "free"]),
    ("purge-delay", &["10ms", "100ms", "1s", "10s"]),
    ("carve", &["page", "bump", "eager"]),
    ("meta", &["inband", "sidecar"]),
    ("warm-slabs", &["0", "1", "4"]),
    ("purge-curve", &["step", "smoothstep"]),
    ("free-order", &["lifo", "address"]),
    ("slab-choice", &["oldest", "fullest", "lowest"]),
    ("front-cache", &["0", "16", "128"]),
];

/// The built-in space. Each axis starts with the word of `policy`.
pub fn built_in(policy: &Policy) -> Space {
    let axis = |(name, words): (&str, &[&str])| {
        let start = Flag::find(name).map(|flag| flag.show(policy).to_string()).unwrap_or_default();
        let others = words.iter().map(|word| word.to_string()).filter(|word| *word != start);
        Axis { flag: name.to_string(), words: std::iter::once(start.clone()).chain(others).collect() }
    };
    Space { axes: WORDS.into_iter().map(axis).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_a_value_of_its_flag() {
        let policy = Policy::default();
        for axis in built_in(&policy).axes {
            let flag = Flag::find(&axis.flag).unwrap_or_else(|| panic!("--{} is gone", axis.flag));
            assert_eq!(axis.words[0], flag.show(&policy).to_string());
            for word in &axis.words {
                let mut policy = Policy::default();
                flag.set(&mut policy, word).unwrap_or_else(|why| panic!("--{} {word}: {why}", axis.flag));
                assert_eq!(flag.show(&policy).to_string(), *word, "--{}", axis.flag);
            }
        }
    }
}
