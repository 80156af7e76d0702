//! Numbers as they are written on the command line: sizes are binary, counts decimal, times have a unit.

/// Bytes: digits with K, M, G or T behind them (powers of 1024), `B` or `iB` after that if one likes.
///
/// # Errors
/// Says what was expected.
pub fn parse_size(word: &str) -> Result<u64, String> {
    let bare = word.strip_suffix("iB").or_else(|| word.strip_suffix('B')).unwrap_or(word);
    scaled(bare, 1024)
        .ok_or_else(|| format!("`{word}` is no size; write bytes, or K, M, G or T behind a number: 64K, 2M"))
}

/// A plain number with k, M or G behind it (powers of 1000).
///
/// # Errors
/// Says what was expected.
pub fn parse_count(word: &str) -> Result<u64, String> {
    scaled(word, 1000).ok_or_else(|| format!("`{word}` is no count; write a number, or k, M or G behind one: 100k, 1M"))
}

/// A count that fits 32 bits.
///
/// # Errors
/// Says what was expected.
pub fn parse_count_32(word: &str) -> Result<u32, String> {
    let count = parse_count(word)?;
    u32::try_from(count).map_err(|_| format!("`{word}` is too large; {} is the most", u32::MAX))
}

/// Bytes that fit 32 bits.
///
/// # Errors
/// Says what was expected.
pub fn parse_size_32(word: &str) -> Result<u32, String> {
    let bytes = parse_size(word)?;
    u32::try_from(bytes).map_err(|_| format!("`{word}` is too large; it must be below 4G"))
}

/// Nanoseconds: digits and ns, us, ms or s; 0 needs no unit.
///
/// # Errors
/// Says what was expected.
pub fn parse_time(word: &str) -> Result<u64, String> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let with_unit = units.iter().find_map(|&(unit, ns)| {
        let number = digits(word.strip_suffix(unit)?)?;
        number.checked_mul(ns)
    });
    with_unit
        .or_else(|| (word == "0").then_some(0))
        .ok_or_else(|| format!("`{word}` is no time; write a number with its unit, ns, us, ms or s: 100ms"))
}

/// The shortest exact form that [`parse_size`] reads.
pub fn show_size(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let unit = units.iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// The shortest exact form that [`parse_time`] reads.
pub fn show_time(ns: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    match units.iter().find(|(_, unit)| ns.is_multiple_of(*unit)) {
        _ if ns == 0 => "0".to_string(),
        Some((name, unit)) => format!("{}{name}", ns / unit),
        None => format!("{ns}ns"),
    }
}

/// Digits with one of the letters K, M, G, T behind them.
fn scaled(word: &str, base: u64) -> Option<u64> {
    let letters = ["k", "m", "g", "t"];
    let exponent = letters.iter().position(|letter| word.to_ascii_lowercase().ends_with(letter));
    match exponent {
        None => digits(word),
        Some(index) => digits(word.get(..word.len() - 1)?)?.checked_mul(base.pow(index as u32 + 1)),
    }
}

/// Digits alone: no sign, no space.
fn digits(word: &str) -> Option<u64> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_counts_decimal() {
        assert_eq!(parse_size("2M"), Ok(2 * 1024 * 1024));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("4096"), Ok(4_096));
        assert_eq!(parse_count("1M"), Ok(1_000_000));
        assert_eq!(parse_count("100k"), Ok(100_000));
        assert_eq!(parse_time("100ms"), Ok(100_000_000));
        assert_eq!(parse_time("0"), Ok(0));
    }

    #[test]
    fn anything_else_is_refused() {
        for word in ["", "-1", "+1", "abc", "M", "1.5M", "1 M", "2MM", "99999999999999999999", "20000000T", "1é"] {
            assert!(parse_size(word).is_err(), "{word:?} as a size");
            assert!(parse_count(word).is_err(), "{word:?} as a count");
        }
        for word in ["", "5", "ms", "-1ms", "1.5s", "100 ms", "99999999999999999999ns", "99999999999s", "1m"] {
            assert!(parse_time(word).is_err(), "{word:?} as a time");
        }
        assert!(parse_count_32("4294967296").is_err());
        assert!(parse_size_32("4G").is_err());
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for bytes in [0, 1, 1023, 1024, 1536, 2 << 20, 64 << 30, 16 << 40, u64::MAX] {
            assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
        }
        for ns in [0, 1, 999, 1_000, 1_500, 100_000_000, 3_000_000_000, u64::MAX] {
            assert_eq!(parse_time(&show_time(ns)), Ok(ns));
        }
        assert_eq!((show_size(1536), show_time(100_000_000)), ("1536".into(), "100ms".into()));
    }
}
