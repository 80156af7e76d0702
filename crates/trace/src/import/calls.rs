//! Numbers in text traces.

pub(super) use crate::functions::{Function, align_log2};

/// A number: decimal, negative (returned as two's complement), hexadecimal with `0x`, or one of the spellings of NULL.
pub(super) fn number(word: &str) -> Option<u64> {
    if let Some(digits) = word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    match word {
        "(nil)" | "nil" | "NULL" => Some(0),
        _ => match word.strip_prefix('-') {
            Some(digits) => digits.parse::<u64>().ok().map(u64::wrapping_neg),
            None => word.parse().ok(),
        },
    }
}

/// The first `count` arguments of a list, each parsed by `value`. The rest of the array is 0.
pub(super) fn arguments(list: &str, count: usize, value: impl Fn(&str) -> Option<u64>) -> Option<[u64; 3]> {
    let mut numbers = [0; 3];
    let mut words = list.split(',');
    for to in numbers.iter_mut().take(count) {
        *to = value(words.next()?.trim())?;
    }
    Some(numbers)
}
