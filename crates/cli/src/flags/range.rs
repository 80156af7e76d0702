//! Ranges in lists of values: `256K..4M` is `256K,512K,1M,2M,4M`.

use hksim_policy::units::{Size, Time, parse_count, parse_size, parse_time};

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
        Words(_) | WordsOr(..) | Modes(_) => return Ok(words.to_string()),
        Bytes(_) => (|word| parse_size(word).map_err(|why| why.to_string()), |bytes| Size(bytes).to_string()),
        Count(_) => (|word| parse_count(word).map_err(|why| why.to_string()), |count| count.to_string()),
        Ns(_) => (|word| parse_time(word).map_err(|why| why.to_string()), |ns| Time(ns).to_string()),
    };
    let mut values = Vec::new();
    for word in words.split(flag.separator()) {
        let Some((first, last)) = word.split_once("..") else {
            values.push(word.to_string());
            continue;
        };
        let end = |word: &str| parse(word).map_err(|why| format!("`{word}`: {why}"));
        values.extend(doubled(end(first)?, end(last)?, show)?);
    }
    Ok(values.join(&flag.separator().to_string()))
}

/// The values from `first` to `last`, each twice the one before.
fn doubled(first: u64, last: u64, show: fn(u64) -> String) -> Result<Vec<String>, String> {
    if first == 0 {
        return Err(format!(
            "a range starts above 0, because each value is twice the one before; write 0,1..{}",
            show(last)
        ));
    }
    if last < first {
        return Err(format!("the range ends below its start; write {}..{}", show(last), show(first)));
    }
    let values: Vec<u64> =
        std::iter::successors(Some(first), |value| value.checked_mul(2)).take_while(|&value| value <= last).collect();
    let reached = values.last().copied().unwrap_or(first);
    if reached != last {
        let next = reached.checked_mul(2).map_or(String::new(), |next| format!(" or {}", show(next)));
        return Err(format!(
            "each value of a range is twice the one before, so it ends at {}{next}, not at {}",
            show(reached),
            show(last)
        ));
    }
    Ok(values.into_iter().map(show).collect())
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
            ("cache", "1..18446744073709551615", "ends at 9223372036854775808, not"),
        ] {
            let why = of(flag, words).expect_err(words);
            assert!(why.contains(part), "--{flag} {words}: {why}");
        }
    }
}
