//! Designs as the words of a command line: names, and the flags of their settings with lists of values.

use std::collections::HashSet;

use hksim_engine::DesignLabel;
use hksim_text::{nearest, units};
use serde_json::Value;
use thiserror::Error;

use crate::listed::{About, all, find};
use crate::settings::Setting;

/// A design with its settings, whatever its type.
pub type Label = DesignLabel<Value>;

/// Maximum number of designs of one sweep.
const LABELS_MAX: usize = 100_000;

/// Words that are no designs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WordsError {
    /// No design has this name.
    #[error("--design {name}: unknown; designs are {known}{question}")]
    Unknown {
        /// The name.
        name: String,
        /// All names.
        known: String,
        /// The name that was probably meant.
        question: String,
    },
    /// A setting of no design that was named.
    #[error("--{flag} is no setting of the design {designs}, which has {settings}")]
    NoSetting {
        /// The flag.
        flag: String,
        /// The designs that were named.
        designs: String,
        /// Their settings.
        settings: String,
    },
    /// A setting without a design.
    #[error("--{flag} is a setting of a design; add --design {design}")]
    NoDesign {
        /// The flag.
        flag: String,
        /// A design that has it.
        design: String,
    },
    /// A setting without a value, in a design that is one word.
    #[error("`+{part}` is not a setting of a design; write +FLAG=VALUE")]
    NoValue {
        /// What follows the plus sign.
        part: String,
    },
    /// A word is not a value of its setting.
    #[error("--{flag} {why}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Why.
        why: String,
    },
    /// The settings do not fit together.
    #[error("--design {design}: {why}")]
    Combination {
        /// The design.
        design: &'static str,
        /// Why.
        why: String,
    },
    /// A list in a command that takes one design.
    #[error("--{flag} {words}: this command takes one design; use `hksim sweep` for lists")]
    List {
        /// The flag.
        flag: String,
        /// Its words.
        words: String,
    },
    /// Too many designs.
    #[error("--{flag}: with its {values} the lists span more than {most} designs; shorten them")]
    TooMany {
        /// The flag whose values exceed the limit.
        flag: &'static str,
        /// Its values.
        values: String,
        /// The limit.
        most: String,
    },
}

/// Designs as given on a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesignWords {
    /// The names, separated by commas; empty without `--design`.
    pub names: String,
    /// The flags of settings with their lists, in the order of the command line.
    pub given: Vec<(String, String)>,
}

impl DesignWords {
    /// Parses designs written as one word: a name, followed by any number of `+FLAG=VALUE`.
    ///
    /// # Errors
    /// A flag has no value.
    pub fn of_word(word: &str) -> Result<DesignWords, WordsError> {
        let mut parts = word.split('+');
        let names = parts.next().unwrap_or_default().to_string();
        let given = parts.map(|part| match part.split_once('=') {
            Some((flag, words)) if !words.is_empty() => Ok((flag.to_string(), words.to_string())),
            _ => Err(WordsError::NoValue { part: part.to_string() }),
        });
        Ok(DesignWords { names, given: given.collect::<Result<_, _>>()? })
    }

    /// Whether designs are named.
    ///
    /// # Errors
    /// Settings are given without a design.
    pub fn is_given(&self) -> Result<bool, WordsError> {
        match self.given.first() {
            Some((flag, _)) if self.names.is_empty() => {
                let design = all().into_iter().find(|about| about.setting(flag).is_some());
                let design = design.map_or("NAME", |about| about.name).to_string();
                Err(WordsError::NoDesign { flag: flag.clone(), design })
            }
            _ => Ok(!self.names.is_empty()),
        }
    }

    /// Every combination of the values given, design by design; the first flag varies slowest. Values that mean the same
    /// as an earlier one are left out, and `warn` is told.
    ///
    /// # Errors
    /// A name, a flag, a value or a combination is refused.
    pub fn labels(&self, warn: &dyn Fn(&str)) -> Result<Vec<Label>, WordsError> {
        let mut named: Vec<About> = Vec::new();
        for name in self.names.split(',') {
            let about = find(name).ok_or_else(|| unknown(name))?;
            if named.iter().any(|known| known.name == name) {
                warn(&format!("--design: {name} is in the list twice; the second is left out"));
            } else {
                named.push(about);
            }
        }
        self.check_settings(&named)?;
        let mut labels = Vec::new();
        for about in &named {
            labels.extend(self.of_design(about, warn)?);
        }
        Ok(labels)
    }

    /// The only design given.
    ///
    /// # Errors
    /// As of [`DesignWords::labels`]; or there is a list.
    pub fn label(&self, warn: &dyn Fn(&str)) -> Result<Label, WordsError> {
        let names = ("design".to_string(), self.names.clone());
        if let Some((flag, words)) = std::iter::once(&names).chain(&self.given).find(|(_, words)| words.contains(',')) {
            return Err(WordsError::List { flag: flag.clone(), words: words.clone() });
        }
        let labels = self.labels(warn)?;
        // A range is a list, too.
        let several = |(flag, words): &(String, String)| WordsError::List { flag: flag.clone(), words: words.clone() };
        match (labels.len(), self.given.iter().find(|(_, words)| words.contains(".."))) {
            (2.., Some(range)) => Err(several(range)),
            _ => labels.into_iter().next().ok_or_else(|| unknown("")),
        }
    }

    /// Checks that each flag is a setting of a named design.
    fn check_settings(&self, named: &[About]) -> Result<(), WordsError> {
        let has = |flag: &str| named.iter().any(|about| about.setting(flag).is_some());
        let Some((flag, _)) = self.given.iter().find(|(flag, _)| !has(flag)) else { return Ok(()) };
        let settings = named.iter().flat_map(|about| about.settings).map(|setting| format!("--{}", setting.flag));
        let designs = named.iter().map(|about| about.name).collect::<Vec<_>>().join(" or ");
        let settings = settings.collect::<Vec<_>>().join(", ");
        Err(WordsError::NoSetting { flag: flag.clone(), designs, settings })
    }

    /// The combinations of one design.
    fn of_design(&self, about: &About, warn: &dyn Fn(&str)) -> Result<Vec<Label>, WordsError> {
        let mut all = vec![about.default.clone()];
        for (flag, list) in &self.given {
            let Some(setting) = about.setting(flag) else { continue };
            let values = distinct(setting, list, warn)?;
            if all.len().saturating_mul(values.len()) > LABELS_MAX {
                let (values, most) = (units::of(values.len() as u64, "value"), units::count(LABELS_MAX as u64));
                return Err(WordsError::TooMany { flag: setting.flag, values, most });
            }
            let with = |settings: &Value, value: &Value| {
                let mut settings = settings.clone();
                settings[setting.field] = value.clone();
                settings
            };
            all = all.iter().flat_map(|settings| values.iter().map(|value| with(settings, value))).collect();
        }
        let label = |settings: Value| {
            about.check(&settings).map_err(|why| WordsError::Combination { design: about.name, why })?;
            Ok(Label { design: about.name.to_string(), settings })
        };
        all.into_iter().map(label).collect()
    }
}

fn unknown(name: &str) -> WordsError {
    let known: Vec<&str> = all().iter().map(|about| about.name).collect();
    let question = nearest::question(name, known.iter().copied());
    WordsError::Unknown { name: name.to_string(), known: known.join(", "), question }
}

/// The values of a list, without those that mean the same as an earlier one (1M, 1024K).
fn distinct(setting: &Setting, list: &str, warn: &dyn Fn(&str)) -> Result<Vec<Value>, WordsError> {
    let refused = |why| WordsError::Value { flag: setting.flag, why };
    let (mut seen, mut values) = (HashSet::new(), Vec::new());
    for word in setting.words(list).map_err(refused)? {
        let value = setting.parse(&word).map_err(refused)?;
        if seen.insert(value.to_string()) {
            values.push(value);
        } else {
            warn(&format!("--{}: {word} is in the list twice; the second is left out", setting.flag));
        }
    }
    Ok(values)
}

/// The flags that give a design, each with its word: its name, then its settings.
pub fn flags(label: &Label) -> Vec<(&'static str, String)> {
    let Some(about) = find(&label.design) else { return vec![("design", label.design.clone())] };
    let settings = about.settings.iter().map(|setting| (setting.flag, setting.show(&label.settings)));
    std::iter::once(("design", label.design.clone())).chain(settings).collect()
}

/// Number of settings that are not the design's defaults.
pub fn settings_changed(label: &Label) -> usize {
    let about = find(&label.design);
    let differs =
        |about: &About, setting: &&Setting| about.default.get(setting.field) != label.settings.get(setting.field);
    about.map_or(0, |about| about.settings.iter().filter(|setting| differs(&about, setting)).count())
}

/// A design that differs in one setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// The setting's flag.
    pub flag: &'static str,
    /// Its word.
    pub word: String,
    /// The word that it replaces.
    pub instead_of: String,
    /// The design.
    pub label: Label,
}

/// The designs that differ in one setting: by another word, or by a quarter of its number or four times as much. Those
/// whose settings do not fit together are left out.
pub fn neighbours(label: &Label) -> Vec<Neighbour> {
    let Some(about) = find(&label.design) else { return Vec::new() };
    let mut neighbours = Vec::new();
    for setting in about.settings {
        for value in setting.others(&label.settings) {
            let mut settings = label.settings.clone();
            settings[setting.field] = value;
            if about.check(&settings).is_ok() {
                neighbours.push(Neighbour {
                    flag: setting.flag,
                    word: setting.show(&settings),
                    instead_of: setting.show(&label.settings),
                    label: Label { design: label.design.clone(), settings },
                });
            }
        }
    }
    neighbours
}
