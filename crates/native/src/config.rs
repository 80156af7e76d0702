//! The process's settings, as the environment gives them: `superslab=1M huge=never misuse=check`.
//!
//! Words are those of the policy flags on the command line, separated by spaces or commas; later ones override earlier ones.
//! Reading them allocates nothing: it happens inside the first `malloc` of a program.

use std::ffi::CStr;

use hksim_policy::flags::{Flag, ValueError};
use hksim_policy::vocabulary::{Align, Header};
use hksim_policy::{Checks, Policy, PolicyError, ProcessConfig};

/// The environment variable that holds the settings.
pub const POLICY_VARIABLE: &CStr = c"HKSIM_NATIVE_POLICY";

/// Alignment, in bytes, of every block of more than 8.
const BLOCK_ALIGN: u32 = 16;

/// A policy that programs can run on, and what follows when they err.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NativeConfig {
    /// The policy. Its arena is smaller in a program whose address space is limited.
    pub policy: Policy,
    /// What follows when the program errs.
    pub on_invalid_free: OnInvalidFree,
}

/// What follows when a program frees what is no live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnInvalidFree {
    /// One line on standard error, and the end.
    #[default]
    Abort,
    /// The same, and every free is checked closely.
    Check,
    /// Every free is checked closely; such calls are counted, and nothing else comes of them.
    Count,
}

impl OnInvalidFree {
    const WORDS: &[&str] = &["abort", "check", "count"];

    fn from_word(word: &str) -> Option<OnInvalidFree> {
        match word {
            "abort" => Some(OnInvalidFree::Abort),
            "check" => Some(OnInvalidFree::Check),
            "count" => Some(OnInvalidFree::Count),
            _ => None,
        }
    }
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError<'a> {
    /// One of the words.
    Word(&'a str, WordError),
    /// All of them together.
    Policy(PolicyError),
    /// Headers of one byte, on which programs cannot run.
    Misaligned,
}

/// Why a word is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordError {
    /// Without `=`.
    NoValue,
    /// A name that is no flag.
    Unknown,
    /// A flag with a value that it does not take.
    Value(ValueError),
    /// `align` with another value than `arena`.
    Align,
    /// A flag about the replayed program.
    Program,
    /// A flag about the simulated kernel.
    Kernel,
}

impl std::fmt::Display for ConfigError<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::Word(word, why) => write!(f, "{word}: {why}"),
            ConfigError::Policy(why) => why.fmt(f),
            ConfigError::Misaligned => f.write_str(
                "a header of 1 byte leaves blocks aligned to 1 byte, and programs crash on that (SSE moves); simulate and replay \
                 it, or run it with header-bytes=16 or header=none",
            ),
        }
    }
}

impl std::error::Error for ConfigError<'_> {}

impl std::fmt::Display for WordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WordError::Value(why) => return why.fmt(f),
            WordError::NoValue => "write FLAG=VALUE, as in superslab=1M",
            WordError::Unknown => "no such policy flag; docs/policy-flags.md has them",
            WordError::Align => {
                "in a program SuperSlabs lie in one arena, where every pointer that is freed can be told from others; use \
                 align=arena, or replay it"
            }
            WordError::Program => "is about a replayed program; a real one touches what it touches: leave it out",
            WordError::Kernel => "is about a simulated kernel; this runs on the one that is there: leave it out",
        })
    }
}

impl NativeConfig {
    /// Reads settings.
    ///
    /// # Errors
    /// A word that is no flag or no value, and what no program can run on.
    pub fn read(text: &str) -> Result<NativeConfig, ConfigError<'_>> {
        let mut config = NativeConfig::default();
        for word in text.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty()) {
            let word = word.strip_prefix("--").unwrap_or(word);
            let set = word.split_once('=').ok_or(WordError::NoValue).and_then(|(flag, value)| config.set(flag, value));
            set.map_err(|why| ConfigError::Word(word, why))?;
        }
        config.policy.prepare().map_err(ConfigError::Policy)?;
        let Policy { header, header_bytes, .. } = config.policy;
        if header != Header::None && !header_bytes.is_multiple_of(BLOCK_ALIGN) {
            return Err(ConfigError::Misaligned);
        }
        Ok(config)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), WordError> {
        match flag {
            "preset" => {
                let preset = Policy::preset(value);
                self.policy = preset.ok_or(WordError::Value(ValueError::Word(Policy::PRESETS)))?;
            }
            "misuse" => {
                let known = OnInvalidFree::from_word(value);
                self.on_invalid_free = known.ok_or(WordError::Value(ValueError::Word(OnInvalidFree::WORDS)))?;
            }
            "touch" | "memory-policy" => return Err(WordError::Program),
            "kernel" | "thp" | "mthp" | "hugetlb-pool" => return Err(WordError::Kernel),
            _ => {
                let flag = Flag::find(flag).ok_or(WordError::Unknown)?;
                flag.set(&mut self.policy, value).map_err(WordError::Value)?;
                if self.policy.align != Align::Arena {
                    return Err(WordError::Align);
                }
            }
        }
        Ok(())
    }

    /// What the process decides beside its policy.
    pub fn process(&self) -> ProcessConfig {
        let checks = match self.on_invalid_free {
            OnInvalidFree::Abort => Checks::Quick,
            OnInvalidFree::Check | OnInvalidFree::Count => Checks::Full,
        };
        ProcessConfig { checks, ..ProcessConfig::default() }
    }
}
