//! The flags of a simulated or replayed run: those of the policy, and of what is above and beneath the allocator. Arguments,
//! help and docs/reference/policy-flags.md are made from them.

use std::sync::{LazyLock, Once};

use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_linux_mm::{KernelVersion, ThpMode};
use hksim_policy::Policy;
use hksim_policy::flags::{FLAGS as POLICY_FLAGS, Flag as PolicyFlag, Values as PolicyValues};
use hksim_policy::units::parse_count;
use hksim_policy::vocabulary::Huge;

use super::choice::{BaseKernel, Choice};
use super::mthp;
use crate::host;
use crate::output::note;

/// What a flag takes.
#[derive(Clone, Debug)]
pub enum Values {
    /// One of these words.
    Words(Vec<&'static str>),
    /// Bytes, in these words.
    Size(&'static str),
    /// A number, in these words.
    Count(&'static str),
    /// A time, in these words.
    Time(&'static str),
    /// Sizes of huge pages with their modes, in these words.
    Modes(&'static str),
}

/// What a flag is about: the allocator, what is above or what is beneath it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The allocator.
    Policy,
    /// The program that uses it.
    Program,
    /// The simulated kernel; a replay runs on the one that is there.
    Kernel,
}

/// A flag.
#[derive(Clone, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What it is about.
    pub subject: Subject,
    /// What it takes.
    pub values: Values,
    /// What holds without it, where [`Flag::show`] of the default policy is not the whole answer.
    pub default: Option<&'static str>,
    /// What it does.
    pub help: &'static str,
    access: Access,
}

/// Where a flag's value is kept.
#[derive(Clone, Copy, Debug)]
enum Access {
    /// In the policy.
    Policy(&'static PolicyFlag),
    /// Beside it.
    Beside {
        /// Puts a value into a choice, or says why it can't.
        set: fn(&mut Choice, &str) -> Result<(), String>,
        /// The value that a choice has.
        show: fn(&Choice) -> String,
    },
}

/// Every flag, in the order of the help text.
pub static FLAGS: LazyLock<Vec<Flag>> =
    LazyLock::new(|| POLICY_FLAGS.iter().map(of_policy).chain(program_flags()).chain(kernel_flags()).collect());

fn of_policy(flag: &'static PolicyFlag) -> Flag {
    let values = match flag.values {
        PolicyValues::Words(words) => Values::Words(words.to_vec()),
        PolicyValues::Size(range) => Values::Size(range),
        PolicyValues::Count(what) => Values::Count(what),
        PolicyValues::Time(clock) => Values::Time(clock),
    };
    let &PolicyFlag { name, help, .. } = flag;
    Flag { name, subject: Subject::Policy, values, default: None, help, access: Access::Policy(flag) }
}

/// The flag of that name.
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// Whether a word is a value of `--huge`, or was meant as one.
pub fn is_huge_value(word: &str) -> bool {
    let words = find("huge").map(|flag| &flag.values);
    let is_known = matches!(words, Some(Values::Words(words)) if words.contains(&word));
    is_known || word == OLD_SYSTEM || word.starts_with("mthp-")
}

/// The word that `--huge system` had in the first version.
const OLD_SYSTEM: &str = "thp-always";

/// Says once that the word has changed.
fn current_word_of_system() -> &'static str {
    static SAID: Once = Once::new();
    let word = Huge::System.word();
    SAID.call_once(|| {
        note(&format!("--huge {OLD_SYSTEM} is now called {word}; the old word will go with the next version"))
    });
    word
}

/// Kernel versions that are not simulated are refused with these words.
const OTHER_KERNELS: &str =
    "only rules of Linux 5.15, 6.1, 6.8, 6.12, 6.14 and 6.18 are simulated; use the nearest of them that is not newer";

/// Why a value that is not one of the words is refused.
fn refuse(word: &str, known: &[&str]) -> String {
    format!("`{word}` is not one of {}", known.join(", "))
}

/// Flags about the program that uses the allocator.
fn program_flags() -> Vec<Flag> {
    vec![
        Flag {
            name: "touch",
            subject: Subject::Program,
            values: Values::Words(touch_words()),
            default: Some("recorded where the trace has touches, else all"),
            help: "Which bytes of its blocks the program touches",
            access: Access::Beside {
                set: |choice, word| {
                    let rule = TouchRule::from_word(word);
                    choice.touch = Some(rule.ok_or_else(|| refuse(word, &touch_words()))?);
                    Ok(())
                },
                show: |choice| choice.touch.map_or("by trace", TouchRule::word).to_string(),
            },
        },
        Flag {
            name: "memory-policy",
            subject: Subject::Program,
            values: Values::Words(memory_policy_words()),
            default: Some("recorded"),
            help: "What the program asked of the kernel for all its memory (PR_SET_THP_DISABLE, mlockall): do it, or not",
            access: Access::Beside {
                set: |choice, word| {
                    let rule = MemoryPolicyRule::from_word(word);
                    choice.memory_policy = rule.ok_or_else(|| refuse(word, &memory_policy_words()))?;
                    Ok(())
                },
                show: |choice| choice.memory_policy.word().to_string(),
            },
        },
    ]
}

/// Flags about the simulated kernel.
fn kernel_flags() -> Vec<Flag> {
    vec![
        Flag {
            name: "kernel",
            subject: Subject::Kernel,
            values: Values::Words(kernel_words()),
            default: Some("6.18; in validate this machine's"),
            help: "Version whose rules the simulated kernel follows (host: this machine's kernel with its modes, limits and hugetlb pool)",
            access: Access::Beside {
                set: set_kernel,
                show: |choice| choice.kernel_version.unwrap_or(KernelVersion::NEWEST).word().to_string(),
            },
        },
        Flag {
            name: "thp",
            subject: Subject::Kernel,
            values: Values::Words(THP_WORDS.map(|(word, _)| word).to_vec()),
            default: Some("madvise; in validate this machine's"),
            help: "Mode of the simulated kernel's transparent huge pages",
            access: Access::Beside {
                set: |choice, word| {
                    choice.thp =
                        Some(thp_from_word(word).ok_or_else(|| refuse(word, &THP_WORDS.map(|(word, _)| word)))?);
                    Ok(())
                },
                show: |choice| choice.thp.map_or("by command", thp_word).to_string(),
            },
        },
        Flag {
            name: "mthp",
            subject: Subject::Kernel,
            values: Values::Modes(
                "default, or SIZE=always|madvise|inherit|never, a comma between two: 64K=always,256K=madvise",
            ),
            default: Some("all off below 2M, or as --huge says; in validate this machine's"),
            help: "Modes of the simulated kernel's sizes of huge pages; those not named: off below 2M, 2M inherits",
            access: Access::Beside {
                set: |choice, word| {
                    choice.mthp = if word == DEFAULT_SIZES { None } else { Some(mthp::parse(word)?) };
                    Ok(())
                },
                show: |choice| choice.mthp.map_or(DEFAULT_SIZES.to_string(), |sizes| mthp::show(&sizes)),
            },
        },
        Flag {
            name: "hugetlb-pool",
            subject: Subject::Kernel,
            values: Values::Count("pages of 2 MiB"),
            default: Some("unlimited; in validate this machine's"),
            help: "Huge pages in the simulated kernel's pool",
            access: Access::Beside {
                set: |choice, word| {
                    let pages = parse_count(word).map_err(|why| format!("`{word}` {why}"))?;
                    choice.hugetlb_pool = Some(pages);
                    Ok(())
                },
                show: |choice| choice.hugetlb_pool.map_or("unlimited".to_string(), |pages| pages.to_string()),
            },
        },
    ]
}

fn set_kernel(choice: &mut Choice, word: &str) -> Result<(), String> {
    (choice.base, choice.kernel_version) = match word {
        "host" => (Some(BaseKernel::Host), Some(host::version().map_err(|why| format!("{why:#}"))?)),
        _ => {
            let version = KernelVersion::from_word(word);
            (None, Some(version.ok_or_else(|| format!("`{word}`: {OTHER_KERNELS}"))?))
        }
    };
    Ok(())
}

fn kernel_words() -> Vec<&'static str> {
    KernelVersion::ALL.iter().map(|version| version.word()).chain(["host"]).collect()
}

/// The modes that the kernel boots with, or those that the design's `--huge` stands for.
const DEFAULT_SIZES: &str = "default";

const THP_WORDS: [(&str, ThpMode); 3] =
    [("always", ThpMode::Always), ("madvise", ThpMode::Madvise), ("never", ThpMode::Never)];

/// The THP mode of that word.
pub fn thp_from_word(word: &str) -> Option<ThpMode> {
    THP_WORDS.iter().find(|(known, _)| *known == word).map(|(_, mode)| *mode)
}

/// The word of a THP mode.
pub fn thp_word(mode: ThpMode) -> &'static str {
    THP_WORDS.iter().find(|(_, known)| *known == mode).map_or("", |(word, _)| word)
}

fn memory_policy_words() -> Vec<&'static str> {
    MemoryPolicyRule::ALL.map(MemoryPolicyRule::word).to_vec()
}

fn touch_words() -> Vec<&'static str> {
    TouchRule::ALL.map(TouchRule::word).to_vec()
}

impl Flag {
    /// Puts a value into a choice.
    ///
    /// # Errors
    /// Says why it is not a value.
    pub fn set(&self, choice: &mut Choice, word: &str) -> Result<(), String> {
        match self.access {
            Access::Policy(flag) => {
                let word = if flag.name == "huge" && word == OLD_SYSTEM { current_word_of_system() } else { word };
                flag.set(&mut choice.policy, word).map_err(|why| format!("`{word}` {why}"))
            }
            Access::Beside { set, .. } => set(choice, word),
        }
    }

    /// The value that a choice has, as [`Flag::set`] reads it.
    pub fn show(&self, choice: &Choice) -> String {
        match self.access {
            Access::Policy(flag) => flag.show(&choice.policy).to_string(),
            Access::Beside { show, .. } => show(choice),
        }
    }

    /// Its values and their unit, in words.
    pub fn values_text(&self) -> String {
        match &self.values {
            Values::Words(words) => words.join(", "),
            Values::Size(range) => format!("bytes; {range}"),
            Values::Count(what) => format!("number; {what}"),
            Values::Time(units) => format!("time; {units}"),
            Values::Modes(form) => form.to_string(),
        }
    }

    /// What holds without it.
    pub fn default_text(&self) -> String {
        self.default.map_or_else(|| self.show(&Choice::of(Policy::default())), str::to_string)
    }

    /// What stands between two values of a list.
    pub fn separator(&self) -> char {
        if matches!(self.values, Values::Modes(_)) { '/' } else { ',' }
    }

    /// What stands for a value in the help text.
    pub fn placeholder(&self) -> &'static str {
        match self.values {
            Values::Words(_) => "WORD",
            Values::Size(_) => "SIZE",
            Values::Count(_) => "N",
            Values::Time(_) => "TIME",
            Values::Modes(_) => "SIZE=MODE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_and_shown_as_itself() {
        for flag in FLAGS.iter() {
            let Values::Words(words) = &flag.values else { continue };
            for word in words.iter().filter(|word| **word != "host") {
                let mut choice = Choice::of(Policy::default());
                flag.set(&mut choice, word).unwrap_or_else(|why| panic!("--{} {word}: {why}", flag.name));
                assert_eq!(flag.show(&choice), *word, "--{}", flag.name);
            }
        }
    }

    #[test]
    fn values_not_simulated_are_refused_by_name() {
        for (name, value) in [("huge", "mthp-2M"), ("kernel", "6.6")] {
            let Some(flag) = find(name) else { panic!("--{name} is gone") };
            let why = flag.set(&mut Choice::of(Policy::default()), value).unwrap_err();
            assert!(!why.contains("is not one of"), "--{name} {value}: {why}");
        }
    }

    #[test]
    fn only_names_of_values_follow_huge() {
        assert!(
            ["never", "thp", "hugetlb", "hugetlb-plain", "collapse", "mthp-64K", "thp-always"]
                .iter()
                .all(|word| is_huge_value(word))
        );
        assert!(!["app.hkt", "", "thp2", "Never", "x"].iter().any(|word| is_huge_value(word)));
    }
}
