//! The allocator's configuration from the environment: `superslab=1M huge=never misuse=check`.
//!
//! Settings are policy flags as on the command line, separated by spaces or commas. A later setting overrides an
//! earlier one. Parsing does not allocate, because it runs inside the program's first `malloc`.

use std::ffi::CStr;

use hksim_policy::classes::Classes;
use hksim_policy::flags::{Flag, ValueError};
use hksim_policy::geometry::BLOCK_ALIGN;
use hksim_policy::vocabulary::{Align, Header};
use hksim_policy::{Checks, Policy, PolicyError, ProcessConfig};

/// The environment variable with the configuration.
pub const POLICY_VARIABLE: &CStr = c"HKSIM_NATIVE_POLICY";

/// A policy that a running program can use, and the reaction to invalid frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NativeConfig {
    /// The policy. If the address space is limited, the arena may be smaller than in the policy.
    pub policy: Policy,
    /// The reaction to invalid frees.
    pub on_invalid_free: OnInvalidFree,
}

/// The reaction to a free or realloc of a pointer that is not a live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnInvalidFree {
    /// Print one line on standard error and abort.
    #[default]
    Abort,
    /// Abort, and check every free in full.
    Check,
    /// Check every free in full; count and ignore invalid ones.
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

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError<'a> {
    /// One of the settings is invalid.
    Word(&'a str, WordError),
    /// The policy as a whole is invalid.
    Policy(PolicyError),
    /// The policy has 1-byte headers, with which programs cannot run.
    Misaligned,
    /// The policy has size classes that are not multiples of 16.
    MisalignedClasses,
}

/// Why a setting is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordError {
    /// The setting has no `=`.
    NoValue,
    /// The name is not a flag.
    Unknown,
    /// The flag does not take this value.
    Value(ValueError),
    /// `align` must be `arena`.
    Align,
    /// The flag applies only to a replayed program.
    Program,
    /// The flag applies only to a simulated kernel.
    Kernel,
}

impl std::fmt::Display for ConfigError<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::Word(word, WordError::Value(why)) => {
                let (flag, value) = word.split_once('=').unwrap_or((word, ""));
                write!(f, "invalid value '{value}' for '{flag}': {why}")
            }
            ConfigError::Word(word, why) => write!(f, "{word}: {why}"),
            ConfigError::Policy(why) => why.fmt(f),
            ConfigError::Misaligned => f.write_str(
                "with a header of 1 byte, blocks are aligned to 1 byte only, and programs crash (SSE moves); \
                 use header-bytes=16 or header=none, or simulate \
                 or replay this policy",
            ),
            ConfigError::MisalignedClasses => f.write_str(
                "with size classes above 8 that are not multiples of 16, programs crash (SSE moves); \
                 use multiples of 16, or simulate or replay this policy",
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
            WordError::Unknown => "no such policy flag; see docs/reference/policy-flags.md",
            WordError::Align => {
                "a running program needs one arena, so that free recognises foreign pointers; use align=arena, or replay this \
                 policy"
            }
            WordError::Program => "is about a replayed program; leave it out for a running program",
            WordError::Kernel => "is about a simulated kernel; leave it out to run on the real one",
        })
    }
}

impl NativeConfig {
    /// Parses a configuration.
    ///
    /// # Errors
    /// Unknown flags, invalid values, and policies that programs cannot run on.
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
        if Classes::new(config.policy.classes).block_align() < BLOCK_ALIGN {
            return Err(ConfigError::MisalignedClasses);
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

    /// The settings of the process.
    pub fn process(&self) -> ProcessConfig {
        let checks = match self.on_invalid_free {
            OnInvalidFree::Abort => Checks::Quick,
            OnInvalidFree::Check | OnInvalidFree::Count => Checks::Full,
        };
        ProcessConfig { checks, ..ProcessConfig::default() }
    }
}
