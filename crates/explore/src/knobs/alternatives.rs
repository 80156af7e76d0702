//! The settings of an allocator that are worth a try.

use super::{NUMBER, knobs, may_be};

/// Values of the numbers in settings, by flag, in the unit of the setting: ms, blocks, bytes and KiB. They are far
/// apart: a setting that matters shows in orders of magnitude, and each value costs replays.
const NUMBERS: [(&str, &[u64]); 4] = [
    ("purge-delay", &[0, 100, 1000]),
    ("front-cache", &[64]),
    ("huge-cache", &[32 << 20, 1 << 30]),
    ("prewarm", &[64 << 10]),
];

/// Values of words that users fill in.
const WORDS: [(&str, &[&str]); 1] = [("LIMIT", &["4194304", "134217728"])];

/// The settings of an allocator to try, as environment variables separated by blanks. Left out are the allocator's
/// defaults, and what needs a pool of huge pages.
pub fn alternatives(allocator: &str, version: Option<&str>) -> Vec<String> {
    let is_tried = |knob: &super::Knob| {
        knob.allocator == allocator
            && may_be(version, knob.versions)
            && !knob.effect.starts_with("the default")
            && knob.value != "hugetlb"
    };
    knobs().filter(is_tried).flat_map(|knob| filled(&knob)).collect()
}

/// A line's setting with each of its values.
fn filled(knob: &super::Knob) -> Vec<String> {
    if let Some((word, values)) = WORDS.iter().find(|(word, _)| knob.setting.ends_with(&format!("={word}"))) {
        return values.iter().map(|value| knob.setting.replace(word, value)).collect();
    }
    if !knob.setting.contains(NUMBER) {
        return vec![knob.setting.to_string()];
    }
    let range = knob.value.strip_prefix("{<=").and_then(|rest| rest.strip_suffix('}'));
    let most = range.and_then(|most| most.parse().ok()).unwrap_or(u64::MAX);
    let numbers = NUMBERS.iter().find(|(flag, _)| Some(*flag) == knob.flag).map_or(&[][..], |(_, numbers)| numbers);
    let numbers = numbers.iter().filter(|&&number| number <= most);
    numbers.map(|number| knob.setting.replace(NUMBER, &number.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_with_a_value_is_filled_and_defaults_are_left_out() {
        for knob in knobs() {
            let all = filled(&knob);
            assert!(!all.is_empty(), "{knob:?}");
            assert!(all.iter().all(|setting| !setting.contains(['{', '}'])), "{all:?}");
        }
        let glibc = alternatives("glibc", Some("2.36"));
        let both = "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824";
        assert!(glibc.iter().any(|setting| setting == both), "{glibc:?}");
        assert!(!glibc.iter().any(|setting| setting.contains("hugetlb=0") || setting.contains("hugetlb=2")));
        let old = alternatives("glibc", Some("2.31"));
        assert!(!old.iter().any(|setting| setting.contains("mmap_threshold=1073741824")), "at most 32 MiB there");
        let jemalloc = alternatives("jemalloc", Some("5.3.0"));
        assert!(jemalloc.iter().any(|setting| setting == "MALLOC_CONF=dirty_decay_ms:0"), "{jemalloc:?}");
        assert!(!jemalloc.iter().any(|setting| setting.contains("thp:default")), "{jemalloc:?}");
    }
}
