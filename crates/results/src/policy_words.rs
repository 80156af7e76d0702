//! Policy flags with their words, and the run configurations that they span.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use hksim_explore::flags::table::{FLAGS, Flag, Subject};
use hksim_explore::flags::{ConfigError, RunConfig};
use hksim_policy::Policy;
use hksim_text::{nearest, units};
use thiserror::Error;

use crate::error::ResultError;
use crate::policy_file;

/// The flag whose value can be left out.
const HUGE: &str = "huge";

/// Maximum number of designs of one sweep.
const CONFIGS_MAX: usize = 100_000;

/// Words of flags that are no run configurations.
#[derive(Debug, Error)]
pub enum WordsError {
    /// A word is not a value of its flag, or the words are too many or too few.
    #[error("{0}")]
    Words(String),
    /// The values of flags exclude each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy file cannot be read.
    #[error(transparent)]
    File(#[from] ResultError),
}

/// What a bare `--huge` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeList {
    /// In sweep and validate: never, thp, hugetlb.
    All,
    /// Elsewhere: thp.
    Thp,
}

impl HugeList {
    /// The words that it stands for.
    pub fn words(self) -> &'static str {
        match self {
            HugeList::All => "never,thp,hugetlb",
            HugeList::Thp => "thp",
        }
    }
}

/// Policy flags as given on a command line, or as one word.
#[derive(Clone, Debug, Default)]
pub struct PolicyWords {
    /// Each flag with its words, in the order of the command line.
    pub given: Vec<(&'static Flag, String)>,
    /// The presets, separated by commas.
    pub presets: String,
    /// The policy file.
    pub file: Option<PathBuf>,
}

impl PolicyWords {
    /// Parses a policy written as one word: an optional preset or file, followed by any number of `+FLAG=VALUE`. The
    /// first `+` is omitted if there is no preset or file.
    ///
    /// # Errors
    /// The word names a flag that is not a policy flag.
    pub fn of_word(word: &str) -> Result<PolicyWords, WordsError> {
        let is_file = |base: &str| {
            let file = base.rsplit_once('#').map_or(base, |(file, _)| file);
            file.ends_with(".toml") || file.ends_with(".json")
        };
        let mut parts = word.split('+').peekable();
        let base = parts.next_if(|base| !base.contains('=') || is_file(base)).unwrap_or_default();
        let file = is_file(base).then(|| PathBuf::from(base));
        let presets = if base.is_empty() || file.is_some() { "default" } else { base };
        let given = parts.map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let flag = FLAGS.iter().find(|flag| flag.subject == Subject::Policy && flag.name == name);
            let flag = flag.filter(|flag| !value.is_empty() || (flag.name == HUGE && part == HUGE));
            let flag =
                flag.ok_or_else(|| WordsError::Words(format!("`+{part}` is not a policy flag; write +FLAG=VALUE")))?;
            Ok((flag, value.to_string()))
        });
        Ok(PolicyWords { given: given.collect::<Result<_, WordsError>>()?, presets: presets.to_string(), file })
    }

    /// The same, with a policy file that is relative to this folder.
    #[must_use]
    pub fn in_folder(self, folder: &Path) -> PolicyWords {
        PolicyWords { file: self.file.map(|file| folder.join(file)), ..self }
    }

    /// The policy file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether an argument is one of these.
    pub fn has(name: &str) -> bool {
        ["preset", "policy"].contains(&name) || FLAGS.iter().any(|flag| flag.name == name)
    }

    /// Flags with values that give the same run configurations without the policy file; `None` if there is no file, or
    /// no lists of values span the configurations.
    pub fn without_file(&self, huge: HugeList, warn: &dyn Fn(&str)) -> Option<Vec<(String, String)>> {
        self.file.as_ref()?;
        let (configs, default) = (self.configs(huge, warn).ok()?, RunConfig::of(Policy::DEFAULT));
        let mut rows = 1;
        let mut given = Vec::new();
        for flag in FLAGS.iter() {
            let mut values: Vec<String> = Vec::new();
            for value in configs.iter().map(|config| flag.show(config)) {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            rows *= values.len();
            if values != [flag.show(&default)] {
                given.push((flag.name.to_string(), values.join(&flag.separator().to_string())));
            }
        }
        // The first flag given varies slowest.
        let place = |name: &String| self.given.iter().position(|(flag, _)| flag.name == *name);
        given.sort_by_key(|(name, _)| place(name));
        (rows == configs.len()).then_some(given)
    }

    /// The same policy in one word, as of [`PolicyWords::of_word`], without its policy file; `None` if it names none.
    pub fn word_without_file(word: &str, warn: &dyn Fn(&str)) -> Option<String> {
        let flags = PolicyWords::of_word(word).ok()?.without_file(HugeList::Thp, warn)?;
        let flags: Vec<String> = flags.into_iter().map(|(flag, value)| format!("+{flag}={value}")).collect();
        Some(format!("default{}", flags.concat()))
    }

    /// Every combination of the values given, the first flag varying slowest. At least one.
    ///
    /// # Errors
    /// A value is invalid, or values exclude each other.
    pub fn configs(&self, huge: HugeList, warn: &dyn Fn(&str)) -> Result<Vec<RunConfig>, WordsError> {
        let mut configs = self.bases()?;
        for (flag, words) in &self.given {
            let words = if words.is_empty() { huge.words() } else { words };
            configs = spread(&configs, flag, words, warn)?;
        }
        configs.iter().try_for_each(RunConfig::check)?;
        Ok(configs)
    }

    /// The flags given, each with its words, in the order of the command line.
    ///
    /// # Errors
    /// A word is not a value of its flag.
    pub fn lists(
        &self,
        huge: HugeList,
        base: &RunConfig,
        warn: &dyn Fn(&str),
    ) -> Result<Vec<(&'static Flag, Vec<String>)>, WordsError> {
        let list = |&(flag, ref words): &(&'static Flag, String)| {
            let words = if words.is_empty() { huge.words() } else { words };
            Ok((flag, distinct(flag, words, base, warn)?.into_iter().map(str::to_string).collect()))
        };
        self.given.iter().map(list).collect()
    }

    /// The run configuration that the flags modify: the preset with the policy file applied.
    ///
    /// # Errors
    /// There are several presets, or the file is invalid.
    pub fn base(&self) -> Result<RunConfig, WordsError> {
        match self.bases()?.as_slice() {
            [base] => Ok(base.clone()),
            _ => Err(WordsError::Words(format!("--preset {}: this command starts from one preset", self.presets))),
        }
    }

    /// The only run configuration given.
    ///
    /// # Errors
    /// As for [`PolicyWords::configs`]; a flag has a list of values.
    pub fn config(&self, warn: &dyn Fn(&str)) -> Result<RunConfig, WordsError> {
        let lists = self.given.iter().map(|(flag, words)| (flag.name, words, flag.separator()));
        for (name, words, separator) in lists.chain([("preset", &self.presets, ',')]) {
            if words.contains(separator) {
                return Err(WordsError::Words(format!(
                    "--{name} {words}: this command takes one design; use `hksim sweep` for lists"
                )));
            }
        }
        let configs = self.configs(HugeList::Thp, warn)?;
        configs.into_iter().next().ok_or_else(|| WordsError::Words("no design".to_string()))
    }

    /// The first flag given that configures the simulated kernel.
    pub fn kernel_flag(&self) -> Option<&'static str> {
        self.flag_about(Subject::Kernel)
    }

    /// Whether a flag was given.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(flag, _)| flag.name == name)
    }

    /// The first flag given that configures the simulated kernel, other than this one.
    pub fn kernel_flag_besides(&self, allowed: &str) -> Option<&'static str> {
        let mut flags = self.given.iter().filter(|(flag, _)| flag.subject == Subject::Kernel && flag.name != allowed);
        flags.next().map(|(flag, _)| flag.name)
    }

    /// The first flag given that configures the allocator.
    pub fn policy_flag(&self) -> Option<&'static str> {
        self.flag_about(Subject::Policy)
    }

    /// The first flag or argument given that is about SuperSlab, as which of its policies is meant.
    pub fn allocator_flag(&self) -> Option<&'static str> {
        let preset = (!["", "default"].contains(&self.presets.as_str())).then_some("preset");
        self.policy_flag().or(preset).or(self.file.is_some().then_some("policy"))
    }

    /// The first flag given that configures the program.
    pub fn program_flag(&self) -> Option<&'static str> {
        self.flag_about(Subject::Program)
    }

    fn flag_about(&self, subject: Subject) -> Option<&'static str> {
        self.given.iter().find(|(flag, _)| flag.subject == subject).map(|(flag, _)| flag.name)
    }

    /// The presets, each with the policy file applied.
    fn bases(&self) -> Result<Vec<RunConfig>, WordsError> {
        let presets = self.presets.split(',').map(|name| {
            let known = || {
                let question = nearest::question(name, Policy::PRESETS.iter().copied());
                WordsError::Words(format!(
                    "--preset {name}: unknown; presets are {}{question}",
                    Policy::PRESETS.join(", ")
                ))
            };
            let preset = Policy::preset(name).ok_or_else(known)?;
            match &self.file {
                Some(path) => Ok(policy_file::read(path, &preset)?),
                None => Ok(RunConfig::of(preset)),
            }
        });
        presets.collect()
    }
}

/// Combines every run configuration with every value of a flag.
fn spread(configs: &[RunConfig], flag: &Flag, words: &str, warn: &dyn Fn(&str)) -> Result<Vec<RunConfig>, WordsError> {
    let values = words.split(flag.separator()).count();
    if configs.len().saturating_mul(values) > CONFIGS_MAX {
        return Err(WordsError::Words(format!(
            "--{}: with its {} the lists span more than {} designs; shorten them",
            flag.name,
            units::of(values as u64, "value"),
            units::count(CONFIGS_MAX as u64)
        )));
    }
    let mut spread = Vec::with_capacity(configs.len() * values);
    let base = configs.first().cloned().unwrap_or_else(|| RunConfig::of(Policy::DEFAULT));
    let distinct = distinct(flag, words, &base, warn)?;
    for config in configs {
        for word in &distinct {
            let mut config = config.clone();
            set(flag, &mut config, word)?;
            spread.push(config);
        }
    }
    Ok(spread)
}

/// Sets the value of a flag.
fn set(flag: &Flag, config: &mut RunConfig, word: &str) -> Result<(), WordsError> {
    flag.set(config, word).map_err(|why| WordsError::Words(format!("--{} {why}", flag.name)))
}

/// The words of a list without those that mean the same as an earlier one (1M, 1024K), which are dropped with a note.
fn distinct<'a>(
    flag: &Flag,
    words: &'a str,
    base: &RunConfig,
    warn: &dyn Fn(&str),
) -> Result<Vec<&'a str>, WordsError> {
    let (mut seen, mut kept): (HashSet<String>, Vec<&str>) = (HashSet::new(), Vec::new());
    for word in words.split(flag.separator()) {
        let mut config = base.clone();
        set(flag, &mut config, word)?;
        if seen.insert(flag.show(&config)) {
            kept.push(word);
        } else {
            warn(&format!("--{}: {word} is in the list twice; the second is left out", flag.name));
        }
    }
    Ok(kept)
}
