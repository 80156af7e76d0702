//! Lists of settings: `jemalloc:dirty_decay_ms=0,1000` stands for two allocators.

use hksim_policy::units::parse_size;
use thiserror::Error;

use super::lookup::{LookupError, lookup};

/// Why a range stands for no values: the word, the range, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{word}: {range}: {why}")]
pub struct RangeError {
    word: String,
    range: String,
    why: &'static str,
}

/// The words of a list of allocators, split at commas, with one word for each combination of values. The first setting
/// varies slowest. A word that names no allocator is a further value of the setting before it.
///
/// # Errors
/// A range has no values.
pub fn expanded(pieces: &[String]) -> Result<Vec<String>, RangeError> {
    let mut words: Vec<String> = Vec::new();
    for piece in pieces {
        match words.last_mut() {
            Some(word) if has_setting(word) && !names_allocator(piece) => *word = format!("{word},{piece}"),
            _ => words.push(piece.clone()),
        }
    }
    Ok(words.iter().map(|word| combinations(word)).collect::<Result<Vec<_>, _>>()?.concat())
}

fn has_setting(word: &str) -> bool {
    word.split_once(':').is_some_and(|(_, settings)| settings.contains('='))
}

fn names_allocator(piece: &str) -> bool {
    let kind = piece.split_once(':').map_or(piece, |(kind, _)| kind);
    ["native", "hksim"].contains(&kind) || !matches!(lookup(kind, ""), Err(LookupError::Unknown { .. }))
}

fn combinations(word: &str) -> Result<Vec<String>, RangeError> {
    let Some((kind, settings)) = word.split_once(':') else { return Ok(vec![word.to_string()]) };
    let mut words = vec![format!("{kind}:")];
    for (at, setting) in settings.split('+').enumerate() {
        let joint = if at == 0 { "" } else { "+" };
        let values = values(kind, setting).map_err(|(range, why)| RangeError {
            word: word.to_string(),
            range: range.to_string(),
            why,
        })?;
        words = words.iter().flat_map(|word| values.iter().map(move |value| format!("{word}{joint}{value}"))).collect();
    }
    Ok(words)
}

/// A range, and why it has no values.
type BadRange<'a> = (&'a str, &'static str);

/// A setting once for each of its values.
fn values<'a>(kind: &str, setting: &'a str) -> Result<Vec<String>, BadRange<'a>> {
    let Some((key, list)) = setting.split_once('=') else { return Ok(vec![setting.to_string()]) };
    let mut all = Vec::new();
    for value in list.split(',') {
        match value.split_once("..") {
            Some((first, last)) if first.starts_with(|one: char| one.is_ascii_digit()) => {
                all.extend(doubled(kind, first, last).map_err(|why| (value, why))?);
            }
            _ => all.push(value.to_string()),
        }
    }
    Ok(all.into_iter().map(|value| format!("{key}={value}")).collect())
}

/// The first number and its doubles up to the last, in the form that the allocator reads: most know no units, and
/// mimalloc takes sizes in KiB.
fn doubled(kind: &str, first: &str, last: &str) -> Result<Vec<String>, &'static str> {
    let has_unit = last.ends_with(|one: char| one.is_ascii_alphabetic());
    let (Ok(low), Ok(high)) = (parse_size(first), parse_size(last)) else {
        return Err("expected two numbers, optionally with K, M or G (128K..64M)");
    };
    if low == 0 || high < low {
        return Err("a range starts above 0 and ends at or above its start (1..64)");
    }
    let doubles = std::iter::successors(Some(low), |number| number.checked_mul(2));
    let numbers: Vec<u64> = doubles.take_while(|&number| number <= high).collect();
    if numbers.last() != Some(&high) {
        return Err("each value of a range is twice the one before, and the last is the end");
    }
    let shown = |number: &u64| match kind {
        "mimalloc" | "mimalloc2" | "mimalloc3" if has_unit && low >= 1 << 10 => format!("{}K", number >> 10),
        _ => number.to_string(),
    };
    Ok(numbers.iter().map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let pieces: Vec<String> = line.split(',').map(String::from).collect();
        expanded(&pieces).unwrap_or_else(|why| panic!("{line}: {why}"))
    }

    #[test]
    fn values_become_words_and_the_first_setting_varies_slowest() {
        assert_eq!(words("glibc,tcmalloc,native"), ["glibc", "tcmalloc", "native"]);
        assert_eq!(
            words("jemalloc:thp=always,never,glibc,mimalloc:purge_delay=5"),
            ["jemalloc:thp=always", "jemalloc:thp=never", "glibc", "mimalloc:purge_delay=5"]
        );
        assert_eq!(
            words("glibc:arena_max=1,2+hugetlb=0,1"),
            [
                "glibc:arena_max=1+hugetlb=0",
                "glibc:arena_max=1+hugetlb=1",
                "glibc:arena_max=2+hugetlb=0",
                "glibc:arena_max=2+hugetlb=1"
            ]
        );
        assert_eq!(
            words("native:hakmem+huge=never,thp,./a.so:MY_MODE=a,b"),
            ["native:hakmem+huge=never", "native:hakmem+huge=thp", "./a.so:MY_MODE=a", "./a.so:MY_MODE=b"]
        );
        // Without a setting before it, a word is an allocator, if an unknown one.
        assert_eq!(words("glibc,never"), ["glibc", "never"]);
    }

    #[test]
    fn ranges_double_in_the_unit_of_the_allocator() {
        assert_eq!(
            words("glibc:mmap_threshold=64K..256K"),
            [65536, 131_072, 262_144].map(|n| format!("glibc:mmap_threshold={n}"))
        );
        assert_eq!(
            words("mimalloc:reserve_os_memory=1M..2M"),
            ["1024K", "2048K"].map(|n| format!("mimalloc:reserve_os_memory={n}"))
        );
        assert_eq!(words("jemalloc:narenas=1..4"), [1, 2, 4].map(|n| format!("jemalloc:narenas={n}")));
        for (line, why) in [
            ("glibc:arena_max=0..8", "above 0"),
            ("glibc:arena_max=8..2", "its start"),
            ("glibc:arena_max=2..7", "twice"),
            ("glibc:top_pad=1..many", "two numbers"),
        ] {
            let error = expanded(&[line.to_string()]).expect_err(line);
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
