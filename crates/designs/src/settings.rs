//! The settings of a design as flags: their values, and how words become fields.

use hksim_policy::PAGE_BYTES;
use hksim_policy::units::{Size, parse_count, parse_size};
use hksim_text::doubling;
use hksim_text::nearest;
use serde_json::Value;

/// A setting: a field of [`Design::Settings`](hksim_engine::Design::Settings), and the flag that sets it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its flag, without dashes. No flag of hksim has this name.
    pub flag: &'static str,
    /// The field's name, with its unit last.
    pub field: &'static str,
    /// The values that it accepts.
    pub values: Values,
    /// What it does, in one sentence.
    pub help: &'static str,
}

/// The values of a setting, and the type of its field. Ranges include both ends.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// Bytes, a power of two: `u64`.
    PowerOfTwo(u64, u64),
    /// Bytes, in whole pages of 4 KiB: `u64`.
    Pages(u64, u64),
    /// A number: `u64`.
    Count(u64, u64),
    /// One of these words, which are the names of an enum's values in JSON.
    Words(&'static [&'static str]),
    /// `yes` or `no`: `bool`.
    YesNo,
}

const YES_NO: [&str; 2] = ["no", "yes"];

impl Values {
    /// Its values and their unit, as text.
    pub fn text(&self) -> String {
        match *self {
            Values::PowerOfTwo(min, max) => format!("bytes; {} to {}, a power of two", Size(min), Size(max)),
            Values::Pages(min, max) => format!("bytes; {} to {}, in whole pages", Size(min), Size(max)),
            Values::Count(min, max) => format!("number; {min} to {max}"),
            Values::Words(_) | Values::YesNo => self.words().join(", "),
        }
    }

    /// The words, if it has some.
    pub fn words(&self) -> &[&'static str] {
        match self {
            Values::Words(words) => words,
            Values::YesNo => &YES_NO,
            Values::PowerOfTwo(..) | Values::Pages(..) | Values::Count(..) => &[],
        }
    }

    /// The placeholder of a value in a help text.
    pub fn placeholder(&self) -> &'static str {
        match self {
            Values::PowerOfTwo(..) | Values::Pages(..) => "SIZE",
            Values::Count(..) => "N",
            Values::Words(_) | Values::YesNo => "WORD",
        }
    }
}

impl Setting {
    /// Reads a word.
    ///
    /// # Errors
    /// It is no value of the setting; the message says which are.
    pub fn parse(&self, word: &str) -> Result<Value, String> {
        let words = self.values.words();
        if !words.is_empty() {
            let question = nearest::question(word, words.iter().copied());
            let refused = || format!("`{word}`: expected one of {}{question}", words.join(", "));
            let is_bool = matches!(self.values, Values::YesNo);
            let value = if is_bool { Value::from(word == "yes") } else { Value::from(word) };
            return words.contains(&word).then_some(value).ok_or_else(refused);
        }
        let number = self.number(word)?;
        let is_valid = match self.values {
            Values::PowerOfTwo(min, max) => number.is_power_of_two() && (min..=max).contains(&number),
            Values::Pages(min, max) => number.is_multiple_of(PAGE_BYTES) && (min..=max).contains(&number),
            Values::Count(min, max) => (min..=max).contains(&number),
            Values::Words(_) | Values::YesNo => false,
        };
        let refused = || format!("`{word}` is out of range ({})", self.values.text());
        is_valid.then(|| number.into()).ok_or_else(refused)
    }

    /// The number that a word means.
    fn number(&self, word: &str) -> Result<u64, String> {
        let parsed = if self.is_size() { parse_size(word) } else { parse_count(word) };
        parsed.map_err(|why| format!("`{word}`: {why}"))
    }

    /// Whether its numbers are bytes.
    fn is_size(&self) -> bool {
        matches!(self.values, Values::PowerOfTwo(..) | Values::Pages(..))
    }

    /// A number in the form that [`Setting::parse`] reads.
    fn shown(&self, number: u64) -> String {
        if self.is_size() { Size(number).to_string() } else { number.to_string() }
    }

    /// The value in a design's settings, in the form that [`Setting::parse`] reads.
    pub fn show(&self, settings: &Value) -> String {
        match settings.get(self.field) {
            Some(Value::String(word)) => word.clone(),
            Some(Value::Bool(is_set)) => YES_NO[usize::from(*is_set)].to_string(),
            Some(value) => value.as_u64().map(|number| self.shown(number)).unwrap_or_default(),
            None => String::new(),
        }
    }

    /// Other values than that in a design's settings: the other words, or a quarter of the number and four times as much.
    pub fn others(&self, settings: &Value) -> Vec<Value> {
        let now = settings.get(self.field);
        let number = now.and_then(Value::as_u64).unwrap_or_default();
        let mut words: Vec<String> = self.values.words().iter().map(|word| word.to_string()).collect();
        if words.is_empty() {
            words.extend([number / 4, number.saturating_mul(4)].map(|number| self.shown(number)));
        }
        words.iter().filter_map(|word| self.parse(word).ok()).filter(|value| Some(value) != now).collect()
    }

    /// The words of a list. A range of sizes or numbers is its first value, doubled until the last.
    ///
    /// # Errors
    /// A word is missing, or a range has no such values.
    pub fn words(&self, list: &str) -> Result<Vec<String>, String> {
        if !self.values.words().is_empty() {
            return Ok(list.split(',').map(str::to_string).collect());
        }
        doubling::expanded(list, ',', |word| self.number(word), |number| self.shown(number))
    }
}
