//! Numbers as users write them: sizes are binary, counts decimal, times have a unit. Nothing here allocates, since the
//! native allocator reads its policy inside the first `malloc`.

use core::fmt;

use crate::policy::flags::ValueError;

/// Bytes: digits, optionally followed by K, M, G or T (powers of 1024), and `B` or `iB` after that.
///
/// # Errors
/// Anything else, and sizes that do not fit 64 bits.
pub fn parse_size(word: &str) -> Result<u64, ValueError> {
    let bare = word.strip_suffix("iB").or_else(|| word.strip_suffix('B')).unwrap_or(word);
    scaled(bare, 1024).ok_or(ValueError::Size)
}

/// A count: digits, optionally followed by k, M, G or T (powers of 1000).
///
/// # Errors
/// Anything else, and counts that do not fit 64 bits.
pub fn parse_count(word: &str) -> Result<u64, ValueError> {
    scaled(word, 1000).ok_or(ValueError::Count)
}

/// A count that fits 32 bits.
///
/// # Errors
/// As [`parse_count`], and counts above 2^32 - 1.
pub fn parse_count_32(word: &str) -> Result<u32, ValueError> {
    u32::try_from(parse_count(word)?).map_err(|_| ValueError::CountTooLarge)
}

/// Nanoseconds: digits followed by ns, us, ms or s; 0 needs no unit.
///
/// # Errors
/// Anything else, and times that do not fit 64 bits.
pub fn parse_time(word: &str) -> Result<u64, ValueError> {
    if word == "0" {
        return Ok(0);
    }
    let with_unit = TIME_UNITS.iter().rev().find_map(|&(unit, ns)| digits(word.strip_suffix(unit)?)?.checked_mul(ns));
    with_unit.ok_or(ValueError::Time)
}

/// Units of time and their nanoseconds, the largest first.
const TIME_UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Shows bytes in the shortest exact form that [`parse_size`] reads.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size(bytes) = *self;
        let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
        match units.iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift) {
            Some((unit, shift)) => write!(f, "{}{unit}", bytes >> shift),
            None => write!(f, "{bytes}"),
        }
    }
}

/// Shows nanoseconds in the shortest exact form that [`parse_time`] reads.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Time(ns) = *self;
        match TIME_UNITS.iter().find(|(_, unit_ns)| ns.is_multiple_of(*unit_ns)) {
            Some((unit, unit_ns)) if ns != 0 => write!(f, "{}{unit}", ns / unit_ns),
            _ => f.write_str("0"),
        }
    }
}

/// Digits, optionally followed by one of the letters K, M, G and T.
fn scaled(word: &str, base: u64) -> Option<u64> {
    let letters = *b"kmgt";
    let last = word.as_bytes().last()?.to_ascii_lowercase();
    match letters.iter().position(|&letter| letter == last) {
        None => digits(word),
        Some(index) => digits(word.get(..word.len() - 1)?)?.checked_mul(base.pow(index as u32 + 1)),
    }
}

/// Digits only: no sign, no space.
fn digits(word: &str) -> Option<u64> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}
