//! Numbers in a range, as values of options.

use std::fmt::Display;
use std::str::FromStr;

/// Parses a number from `least` to `most`.
pub fn between<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |word| {
        let number = word.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("expected a number from {least} to {most}"))
    }
}
