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
}

impl Values {
    /// Its values and their unit, as text.
    pub fn text(&self) -> String {
        match *self {
            Values::PowerOfTwo(min, max) => format!("bytes; {} to {}, a power of two", Size(min), Size(max)),
            Values::Pages(min, max) => format!("bytes; {} to {}, in whole pages", Size(min), Size(max)),
            Values::Count(min, max) => format!("number; {min} to {max}"),
            Values::Words(words) => words.join(", "),
        }
    }

    /// The placeholder of a value in a help text.
    pub fn placeholder(&self) -> &'static str {
        match self {
            Values::PowerOfTwo(..) | Values::Pages(..) => "SIZE",
            Values::Count(..) => "N",
            Values::Words(_) => "WORD",
        }
    }
}

impl Setting {
    /// Reads a word.
    ///
    /// # Errors
    /// It is no value of the setting; the message says which are.
    pub fn parse(&self, word: &str) -> Result<Value, String> {
        let refused = || format!("`{word}` is out of range ({})", self.values.text());
        let number = self.number(word)?;
        let is_valid = match (self.values, number) {
            (Values::Words(words), _) => {
                let question = nearest::question(word, words.iter().copied());
                let is_known = words.contains(&word).then(|| Value::from(word));
                return is_known.ok_or_else(|| format!("`{word}`: expected one of {}{question}", words.join(", ")));
            }
            (Values::PowerOfTwo(min, max), number) => number.is_power_of_two() && (min..=max).contains(&number),
            (Values::Pages(min, max), number) => number.is_multiple_of(PAGE_BYTES) && (min..=max).contains(&number),
            (Values::Count(min, max), number) => (min..=max).contains(&number),
        };
        if is_valid { Ok(number.into()) } else { Err(refused()) }
    }

    /// The number that a word means; 0 for a setting that has words.
    fn number(&self, word: &str) -> Result<u64, String> {
        let parsed = match self.values {
            Values::PowerOfTwo(..) | Values::Pages(..) => parse_size(word),
            Values::Count(..) => parse_count(word),
            Values::Words(_) => return Ok(0),
        };
        parsed.map_err(|why| format!("`{word}`: {why}"))
    }

    /// A number in the form that [`Setting::parse`] reads.
    fn shown(&self, number: u64) -> String {
        match self.values {
            Values::PowerOfTwo(..) | Values::Pages(..) => Size(number).to_string(),
            Values::Count(..) | Values::Words(_) => number.to_string(),
        }
    }

    /// The value in a design's settings, in the form that [`Setting::parse`] reads.
    pub fn show(&self, settings: &Value) -> String {
        match settings.get(self.field) {
            Some(Value::String(word)) => word.clone(),
            Some(value) => value.as_u64().map(|number| self.shown(number)).unwrap_or_default(),
            None => String::new(),
        }
    }

    /// Other values than that in a design's settings: the other words, or a quarter of the number and four times as much.
    pub fn others(&self, settings: &Value) -> Vec<Value> {
        let now = settings.get(self.field);
        let number = now.and_then(Value::as_u64).unwrap_or_default();
        let words = match self.values {
            Values::Words(words) => words.iter().map(|word| word.to_string()).collect(),
            _ => [number / 4, number.saturating_mul(4)].map(|number| self.shown(number)).to_vec(),
        };
        words.iter().filter_map(|word| self.parse(word).ok()).filter(|value| Some(value) != now).collect()
    }

    /// The words of a list. A range of sizes or numbers is its first value, doubled until the last.
    ///
    /// # Errors
    /// A word is missing, or a range has no such values.
    pub fn words(&self, list: &str) -> Result<Vec<String>, String> {
        if let Values::Words(_) = self.values {
            return Ok(list.split(',').map(str::to_string).collect());
        }
        doubling::expanded(list, ',', |word| self.number(word), |number| self.shown(number))
    }
}
