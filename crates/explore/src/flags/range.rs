//! Ranges in lists of values: `256K..4M` is `256K,512K,1M,2M,4M`.

use hksim_policy::units::{Size, Time, parse_count, parse_size, parse_time};
use hksim_text::doubling;

use super::table::Flag;

/// Replaces each range in a flag's list by its values: the first value, doubled until the last. Only sizes, counts and
/// times have ranges.
///
/// # Errors
/// An end of a range is not a value, or is not the other end doubled.
pub fn expanded(flag: &Flag, words: &str) -> Result<String, String> {
    use super::table::Values::{Count, Modes, Size as Bytes, Time as Ns, Words, WordsOr};
    type Parse = fn(&str) -> Result<u64, String>;
    let (parse, show): (Parse, fn(u64) -> String) = match flag.values {
        Words(_) | WordsOr(..) | Modes(_) => return without_range(flag, words),
        Bytes(_) => (|word| parse_size(word).map_err(|why| why.to_string()), |bytes| Size(bytes).to_string()),
        Count(_) => (|word| parse_count(word).map_err(|why| why.to_string()), |count| count.to_string()),
        Ns(_) => (|word| parse_time(word).map_err(|why| why.to_string()), |ns| Time(ns).to_string()),
    };
    let end = |word: &str| parse(word).map_err(|why| format!("`{word}`: {why}"));
    let values = doubling::expanded(words, flag.separator(), end, show)?;
    Ok(values.join(&flag.separator().to_string()))
}

/// The list of a flag that has no ranges.
fn without_range(flag: &Flag, words: &str) -> Result<String, String> {
    // `--huge` without a value is a list of its own.
    if words.is_empty() && flag.name != "huge" {
        return Err("a value is missing".to_string());
    }
    let sizes: Vec<&str> = words.split(flag.separator()).collect();
    let is_size = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if flag.name == "classes" && sizes.len() > 1 && sizes.iter().all(is_size) {
        let list = sizes.join("/");
        return Err(format!(
            "commas separate designs, and each of these would have one block size; write {list} for one list"
        ));
    }
    Ok(words.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::table::find;
    use super::*;

    fn of(flag: &str, words: &str) -> Result<String, String> {
        expanded(find(flag).unwrap_or_else(|| panic!("--{flag} is gone")), words)
    }

    #[test]
    fn ranges_double() {
        for (flag, words, values) in [
            ("superslab", "256K..4M", "256K,512K,1M,2M,4M"),
            ("superslab", "64K,1M..2M,32M", "64K,1M,2M,32M"),
            ("superslab", "1M..1M", "1M"),
            ("cache", "0,1..8", "0,1,2,4,8"),
            ("purge-delay", "500us..2ms", "500us,1ms,2ms"),
            ("huge", "never,thp", "never,thp"),
            ("huge", "", ""),
            ("classes", "default,8", "default,8"),
            ("classes", "8/16,8/24", "8/16,8/24"),
        ] {
            assert_eq!(of(flag, words).as_deref(), Ok(values), "--{flag} {words}");
        }
    }

    #[test]
    fn other_ranges_are_refused_with_what_to_write() {
        for (flag, words, part) in [
            ("superslab", "256K..3M", "ends at 2M or 4M, not at 3M"),
            ("superslab", "4M..1M", "write 1M..4M"),
            ("superslab", "..4M", "``: "),
            ("cache", "0..8", "write 0,1..8"),
            ("purge-delay", "0..8ms", "write 0,1ms..8ms"),
            ("huge-cache", "0..4M", "write 0,512K..4M"),
            ("superslab", "", "a value is missing"),
            ("classes", "", "a value is missing"),
            ("classes", "8,16,24", "write 8/16/24 for one list"),
            ("cache", "1..18446744073709551615", "ends at 9223372036854775808, not"),
        ] {
            let why = of(flag, words).expect_err(words);
            assert!(why.contains(part), "--{flag} {words}: {why}");
        }
    }
}
