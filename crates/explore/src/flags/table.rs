//! The flags of a simulated or replayed run: those of the policy, the program and the kernel. Arguments, help and
//! docs/reference/policy-flags.md are generated from this table.

use std::sync::LazyLock;

use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_linux_mm::{KernelVersion, Khugepaged, KhugepagedWork, PMD_PAGES, ThpMode};
use hksim_policy::Policy;
use hksim_policy::flags::{FLAGS as POLICY_FLAGS, Flag as PolicyFlag, ValueError, Values as PolicyValues};
use hksim_policy::units::{Size, parse_count, parse_size};
use hksim_text::nearest;

use super::mthp;
use super::run_config::{BaseKernel, RunConfig};
use crate::host;

/// The values that a flag accepts.
#[derive(Clone, Debug)]
pub enum Values {
    /// One of these words.
    Words(Vec<&'static str>),
    /// One of these words, or a value of the form that the text describes.
    WordsOr(Vec<&'static str>, &'static str),
    /// Bytes; the text describes the range.
    Size(&'static str),
    /// A number; the text names what is counted.
    Count(&'static str),
    /// A time; the text names the units.
    Time(&'static str),
    /// Huge-page sizes with their modes; the text describes the form.
    Modes(&'static str),
}

/// What a flag configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The allocator.
    Policy,
    /// The program that uses it.
    Program,
    /// The simulated kernel. A replay runs on the real one.
    Kernel,
}

/// A flag.
#[derive(Clone, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What it configures.
    pub subject: Subject,
    /// The values it accepts.
    pub values: Values,
    /// The default as text, if [`Flag::show`] of the default policy does not describe it fully.
    pub default: Option<&'static str>,
    /// What it does.
    pub help: &'static str,
    access: Access,
}

/// Where a flag's value is stored.
#[derive(Clone, Copy, Debug)]
enum Access {
    /// In the policy.
    Policy(&'static PolicyFlag),
    /// In the run configuration, outside the policy.
    Beside {
        /// Sets the value in a run configuration, or explains why it is invalid.
        set: fn(&mut RunConfig, &str) -> Result<(), String>,
        /// The value in a run configuration.
        show: fn(&RunConfig) -> String,
    },
}

/// Every flag, in the order of the help text.
pub static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| {
    let kernel_flags = kernel_flags().into_iter().chain(limits_and_huge_pages());
    POLICY_FLAGS.iter().map(of_policy).chain(program_flags()).chain(kernel_flags).collect()
});

fn of_policy(flag: &'static PolicyFlag) -> Flag {
    let values = match flag.values {
        PolicyValues::Words(words) => Values::Words(words.to_vec()),
        PolicyValues::WordsOr(words, form) => Values::WordsOr(words.to_vec(), form),
        PolicyValues::Size(range) => Values::Size(range),
        PolicyValues::Count(what) => Values::Count(what),
        PolicyValues::Time(clock) => Values::Time(clock),
    };
    let &PolicyFlag { name, help, .. } = flag;
    Flag { name, subject: Subject::Policy, values, default: None, help, access: Access::Policy(flag) }
}

/// The flag with this name.
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// Whether a word is a value of `--huge`, or an attempt at one: it has no ranges.
pub fn is_huge_value(word: &str) -> bool {
    if let Some((first, last)) = word.split_once("..") {
        return is_huge_value(first) && is_huge_value(last);
    }
    let words = find("huge").map(|flag| &flag.values);
    let is_known = matches!(words, Some(Values::Words(words)) if words.contains(&word));
    is_known || word.starts_with("mthp-")
}

/// The refusal of a kernel version that is not simulated.
const OTHER_KERNELS: &str =
    "only Linux 5.15, 6.1, 6.8, 6.12, 6.14, 6.18 and 7.2 are simulated; use the nearest of these that is not newer";

/// The refusal of a value that is not one of the known words.
fn refuse(word: &str, known: &[&str]) -> String {
    format!("`{word}`: expected one of {}{}", known.join(", "), nearest::question(word, known.iter().copied()))
}

/// Flags about the program that uses the allocator.
fn program_flags() -> Vec<Flag> {
    vec![
        Flag {
            name: "touch",
            subject: Subject::Program,
            values: Values::Words(touch_words()),
            default: Some("recorded if the trace has touches, else all"),
            help: "Select which bytes of its blocks the program touches",
            access: Access::Beside {
                set: |config, word| {
                    let rule = TouchRule::from_word(word);
                    config.touch = Some(rule.ok_or_else(|| refuse(word, &touch_words()))?);
                    Ok(())
                },
                show: |config| config.touch.map_or("by trace", TouchRule::word).to_string(),
            },
        },
        Flag {
            name: "memory-policy",
            subject: Subject::Program,
            values: Values::Words(memory_policy_words()),
            default: Some("recorded"),
            help: "Apply or ignore the program's recorded PR_SET_THP_DISABLE and mlockall calls",
            access: Access::Beside {
                set: |config, word| {
                    let rule = MemoryPolicyRule::from_word(word);
                    config.memory_policy = rule.ok_or_else(|| refuse(word, &memory_policy_words()))?;
                    Ok(())
                },
                show: |config| config.memory_policy.word().to_string(),
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
            default: Some("6.18; this machine's in validate"),
            help: "Simulate this kernel version (host: this machine's version, modes, limits and hugetlb pool)",
            access: Access::Beside {
                set: set_kernel,
                show: |config| config.kernel_version.unwrap_or(KernelVersion::USUAL).word().to_string(),
            },
        },
        Flag {
            name: "thp",
            subject: Subject::Kernel,
            values: Values::Words(ThpMode::WORDS.map(|(word, _)| word).to_vec()),
            default: Some("madvise; this machine's in validate"),
            help: "Set the simulated kernel's mode of transparent huge pages",
            access: Access::Beside {
                set: |config, word| {
                    config.thp = Some(
                        ThpMode::from_word(word).ok_or_else(|| refuse(word, &ThpMode::WORDS.map(|(word, _)| word)))?,
                    );
                    Ok(())
                },
                show: |config| config.thp.map_or("by command", ThpMode::word).to_string(),
            },
        },
        Flag {
            name: "mthp",
            subject: Subject::Kernel,
            values: Values::Modes(
                "default, or SIZE=always|madvise|inherit|never separated by commas: 64K=always,256K=madvise; several settings are separated by a slash: default/64K=always",
            ),
            default: Some("off below 2M, or as --huge expects; this machine's in validate"),
            help: "Set the simulated kernel's mode of each huge-page size; sizes not named: off below 2M, 2M inherits",
            access: Access::Beside {
                set: |config, word| {
                    config.mthp = if word == DEFAULT_SIZES { None } else { Some(mthp::parse(word)?) };
                    Ok(())
                },
                show: |config| config.mthp.map_or(DEFAULT_SIZES.to_string(), |sizes| mthp::show(&sizes)),
            },
        },
        Flag {
            name: "hugetlb-pool",
            subject: Subject::Kernel,
            values: Values::Count("pages of 2 MiB"),
            default: Some("unlimited; this machine's in validate"),
            help: "Set the number of huge pages in the simulated kernel's pool",
            access: Access::Beside {
                set: |config, word| {
                    let pages = parse_count(word).map_err(|why| format!("`{word}`: {why}"))?;
                    config.hugetlb_pool_pages = Some(pages);
                    Ok(())
                },
                show: |config| config.hugetlb_pool_pages.map_or("unlimited".to_string(), |pages| pages.to_string()),
            },
        },
    ]
}

/// The memory limit, and flags about huge pages of the simulated kernel that counts rarely depend on.
fn limits_and_huge_pages() -> Vec<Flag> {
    vec![memory_limit(), zero_page(), khugepaged(), max_ptes_none(), pages_to_scan(), scan_sleep()]
}

fn memory_limit() -> Flag {
    Flag {
        name: "memory-limit",
        subject: Subject::Kernel,
        values: Values::WordsOr(vec![NO_LIMIT], "SIZE such as 512M"),
        default: Some(NO_LIMIT),
        help: "Set the limit of the program's memory control group (cgroup), without swap: is it killed, and by which event",
        access: Access::Beside {
            set: |config, word| {
                config.memory_limit_bytes = match word {
                    NO_LIMIT => None,
                    size => Some(parse_size(size).map_err(|why| format!("`{word}`: {why}"))?),
                };
                Ok(())
            },
            show: |config| config.memory_limit_bytes.map_or(NO_LIMIT.to_string(), |bytes| Size(bytes).to_string()),
        },
    }
}

/// The word for a program without a memory limit.
const NO_LIMIT: &str = "none";

fn zero_page() -> Flag {
    Flag {
        name: "zero-page",
        subject: Subject::Kernel,
        values: Values::Words(ON_OFF.map(|(word, _)| word).to_vec()),
        default: Some("on; this machine's in validate"),
        help: "Let read faults of the simulated kernel map the huge zero page",
        access: Access::Beside {
            set: |config, word| {
                let on = ON_OFF.iter().find(|(known, _)| *known == word).map(|(_, on)| *on);
                config.use_zero_page = Some(on.ok_or_else(|| refuse(word, &ON_OFF.map(|(word, _)| word)))?);
                Ok(())
            },
            show: |config| if config.use_zero_page == Some(false) { "off" } else { "on" }.to_string(),
        },
    }
}

fn khugepaged() -> Flag {
    const WORDS: [&str; 3] = [KhugepagedWork::WORDS[0].0, KhugepagedWork::WORDS[1].0, KhugepagedWork::WORDS[2].0];
    Flag {
        name: "khugepaged",
        subject: Subject::Kernel,
        values: Values::Words(WORDS.to_vec()),
        default: None,
        help: "Also predict RSS and huge pages at the end: once khugepaged has scanned everything (settled), or at most (bound)",
        access: Access::Beside {
            set: |config, word| {
                config.khugepaged = Some(KhugepagedWork::from_word(word).ok_or_else(|| refuse(word, &WORDS))?);
                Ok(())
            },
            show: |config| config.khugepaged.unwrap_or_default().word().to_string(),
        },
    }
}

fn max_ptes_none() -> Flag {
    const MOST: u64 = PMD_PAGES - 1;
    Flag {
        name: "max-ptes-none",
        subject: Subject::Kernel,
        values: Values::Count("pages of 4 KiB; 0 to 511"),
        default: Some("511"),
        help: "Set how many pages of a 2 MiB range may be absent if khugepaged is to collapse it",
        access: Access::Beside {
            set: |config, word| {
                let pages = parse_count(word).map_err(|why| format!("`{word}`: {why}"))?;
                let pages = Some(pages).filter(|&pages| pages <= MOST);
                config.max_ptes_none = Some(pages.ok_or_else(|| format!("`{word}`: expected 0 to {MOST}"))?);
                Ok(())
            },
            show: |config| config.max_ptes_none.map_or("511".to_string(), |pages| pages.to_string()),
        },
    }
}

fn pages_to_scan() -> Flag {
    Flag {
        name: "pages-to-scan",
        subject: Subject::Kernel,
        values: Values::Count("pages of 4 KiB"),
        default: Some("4096"),
        help: "Set how many pages khugepaged scans before it sleeps",
        access: Access::Beside {
            set: |config, word| {
                config.pages_to_scan = Some(parse_count(word).map_err(|why| format!("`{word}`: {why}"))?);
                Ok(())
            },
            show: |config| config.pages_to_scan.unwrap_or(Khugepaged::default().pages_to_scan).to_string(),
        },
    }
}

fn scan_sleep() -> Flag {
    Flag {
        name: "scan-sleep-millisecs",
        subject: Subject::Kernel,
        values: Values::Count("milliseconds"),
        default: Some("10000"),
        help: "Set how long khugepaged sleeps between two scans",
        access: Access::Beside {
            set: |config, word| {
                config.scan_sleep_ms = Some(parse_count(word).map_err(|why| format!("`{word}`: {why}"))?);
                Ok(())
            },
            show: |config| config.scan_sleep_ms.unwrap_or(Khugepaged::default().scan_sleep_ms).to_string(),
        },
    }
}

const ON_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];

fn set_kernel(config: &mut RunConfig, word: &str) -> Result<(), String> {
    (config.base, config.kernel_version) = match word {
        "host" => (Some(BaseKernel::Host), Some(host::version().map_err(|why| why.to_string())?.version)),
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

/// The kernel's modes after boot, or those that the policy's `--huge` expects.
const DEFAULT_SIZES: &str = "default";

fn memory_policy_words() -> Vec<&'static str> {
    MemoryPolicyRule::ALL.map(MemoryPolicyRule::word).to_vec()
}

fn touch_words() -> Vec<&'static str> {
    TouchRule::ALL.map(TouchRule::word).to_vec()
}

impl Flag {
    /// Sets a value in a run configuration.
    ///
    /// # Errors
    /// Explains why the value is invalid.
    pub fn set(&self, config: &mut RunConfig, word: &str) -> Result<(), String> {
        match self.access {
            Access::Policy(flag) => flag.set(&mut config.policy, word).map_err(|why| match why {
                ValueError::Word(known) => refuse(word, known),
                _ => format!("`{word}`: {why}"),
            }),
            Access::Beside { set, .. } => set(config, word),
        }
    }

    /// The value in a run configuration, in the form that [`Flag::set`] reads.
    pub fn show(&self, config: &RunConfig) -> String {
        match self.access {
            Access::Policy(flag) => flag.show(&config.policy).to_string(),
            Access::Beside { show, .. } => show(config),
        }
    }

    /// Its values and their unit, as text.
    pub fn values_text(&self) -> String {
        match &self.values {
            Values::Words(words) => words.join(", "),
            Values::WordsOr(words, form) => format!("{}; {form}", words.join(", ")),
            Values::Size(range) => format!("bytes; {range}"),
            Values::Count(what) => format!("number; {what}"),
            Values::Time(units) => format!("time; {units}"),
            Values::Modes(form) => form.to_string(),
        }
    }

    /// Its default, as text.
    pub fn default_text(&self) -> String {
        self.default.map_or_else(|| self.show(&RunConfig::of(Policy::default())), str::to_string)
    }

    /// The separator of a list of values.
    pub fn separator(&self) -> char {
        if matches!(self.values, Values::Modes(_)) { '/' } else { ',' }
    }

    /// The placeholder of a value in the help text.
    pub fn placeholder(&self) -> &'static str {
        match self.values {
            Values::Words(_) | Values::WordsOr(..) => "WORD",
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
            let (Values::Words(words) | Values::WordsOr(words, _)) = &flag.values else { continue };
            for word in words.iter().filter(|word| **word != "host") {
                let mut config = RunConfig::of(Policy::default());
                flag.set(&mut config, word).unwrap_or_else(|why| panic!("--{} {word}: {why}", flag.name));
                assert_eq!(flag.show(&config), *word, "--{}", flag.name);
            }
        }
    }

    #[test]
    fn values_not_simulated_are_refused_by_name() {
        for (name, value) in [("huge", "mthp-2M"), ("kernel", "6.6")] {
            let Some(flag) = find(name) else { panic!("--{name} is gone") };
            let why = flag.set(&mut RunConfig::of(Policy::default()), value).unwrap_err();
            assert!(!why.contains("expected one of"), "--{name} {value}: {why}");
        }
    }

    #[test]
    fn only_names_of_values_follow_huge() {
        assert!(
            ["never", "thp", "hugetlb", "hugetlb-plain", "collapse", "mthp-64K", "system"]
                .iter()
                .all(|word| is_huge_value(word))
        );
        assert!(is_huge_value("never..thp") && !is_huge_value("../thp") && !is_huge_value("never..hkt"));
        assert!(!["app.hkt", "", "thp2", "Never", "x"].iter().any(|word| is_huge_value(word)));
    }
}
