//! Figures as text.

/// Bytes with at least three digits, in a suitable unit.
pub fn bytes(bytes: u64) -> String {
    bytes_with(bytes, 1)
}

fn bytes_with(bytes: u64, digits: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.digits$} {}", UNITS[unit]) }
}

/// Several byte values formatted like [`bytes()`], with enough digits to distinguish different ones.
pub fn bytes_apart(all: &[u64]) -> Vec<String> {
    apart(all, 1, |&one, digits| bytes_with(one, digits), |&one| format!("{} B", count(one)))
}

/// Two byte values that are compared, with enough digits to distinguish them.
pub fn bytes_pair(one: u64, other: u64) -> [String; 2] {
    let texts = bytes_apart(&[one, other]);
    [texts[0].clone(), texts[1].clone()]
}

/// Several values as text: with `digits` digits after the point, or as many more as distinguish different values.
/// `exact` writes those that six digits do not distinguish.
pub fn apart<T: PartialEq>(
    all: &[T],
    digits: usize,
    with_digits: impl Fn(&T, usize) -> String,
    exact: impl Fn(&T) -> String,
) -> Vec<String> {
    const DIGITS_MAX: usize = 6;
    let shown = |digits| all.iter().map(|one| with_digits(one, digits)).collect::<Vec<String>>();
    let is_apart = |shown: &[String]| {
        (0..all.len()).all(|one| (0..one).all(|other| (all[one] == all[other]) == (shown[one] == shown[other])))
    };
    let tries = (digits..=DIGITS_MAX).map(shown);
    tries.into_iter().find(|shown| is_apart(shown)).unwrap_or_else(|| all.iter().map(exact).collect())
}

/// A count with its thousands separated.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A count of things: `1 thread`, `2 000 threads`.
pub fn of(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A share in percent; `-` if the whole is 0.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_string() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

/// A time in a suitable unit.
pub fn time(ns: u64) -> String {
    time_with(ns, 0)
}

/// Two times that are compared, with enough digits to distinguish them.
pub fn time_pair(one: u64, other: u64) -> [String; 2] {
    let texts = apart(&[one, other], 0, |&ns, digits| time_with(ns, digits), |&ns| format!("{} ns", count(ns)));
    [texts[0].clone(), texts[1].clone()]
}

/// A time with this many digits more than usual.
fn time_with(ns: u64, more: usize) -> String {
    let (one, two) = (1 + more, 2 + more);
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.one$} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.one$} ms", ns as f64 / 1e6),
        _ => format!("{:.two$} s", ns as f64 / 1e9),
    }
}

/// A number with four digits that count.
pub fn digits(number: f64) -> String {
    let before_point = if number == 0.0 { 1 } else { number.abs().log10().floor() as i32 + 1 };
    format!("{number:.*}", (4 - before_point).clamp(0, 12) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!((bytes(0), bytes(1023), bytes(1536)), ("0 B".into(), "1023 B".into(), "1.5 KiB".into()));
        assert_eq!((bytes(1 << 20), bytes(u64::MAX)), ("1.0 MiB".into(), "16777216.0 TiB".into()));
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes_apart(&[5 << 20, 9 << 20]), ["5.0 MiB", "9.0 MiB"]);
        assert_eq!(bytes_apart(&[5_033_164, 5_041_356, 5_033_164]), ["4.80 MiB", "4.81 MiB", "4.80 MiB"]);
        assert_eq!(bytes_apart(&[2 << 30, (2 << 30) + 4096, 7]), ["2.000000 GiB", "2.000004 GiB", "7 B"]);
        assert_eq!(bytes_pair(2 << 30, (2 << 30) + 1), ["2 147 483 648 B", "2 147 483 649 B"]);
        assert_eq!(bytes_pair(1_825_361_101, 1_830_000_000), ["1.700 GiB", "1.704 GiB"]);
        assert_eq!(
            (count(0), count(999), count(1_000), count(1_234_567)),
            ("0".into(), "999".into(), "1 000".into(), "1 234 567".into())
        );
        assert_eq!(
            (of(0, "thread"), of(1, "thread"), of(1_000, "event")),
            ("0 threads".into(), "1 thread".into(), "1 000 events".into())
        );
        assert_eq!((percent(1, 8), percent(1, 0)), ("12.5 %".into(), "-".into()));
        assert_eq!(time_pair(2_000_000_000, 2_001_000_000), ["2.000 s", "2.001 s"]);
        assert_eq!((time(999), time(1_500), time(2_000_000_000)), ("999 ns".into(), "1.5 us".into(), "2.00 s".into()));
    }
}
