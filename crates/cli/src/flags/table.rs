//! The policy flags: one table, from which arguments, help and docs/policy-flags.md are made.

use hksim_drive::design::{Align, CarveRule, Classes, Design, Header, Huge, Meta, Prefault, PrefaultScope, Purge};
use hksim_drive::{PolicyRule, TouchRule};
use hksim_sim::kernel::{KernelVersion, ThpMode};

use super::choice::{BaseKernel, Choice};
use super::mthp;
use super::values::{parse_count, parse_count_32, parse_size, parse_time, show_size, show_time};
use crate::host;

/// What a flag takes.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// One of these words.
    Words(fn() -> Vec<&'static str>),
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

/// A policy flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What it is about.
    pub subject: Subject,
    /// What it takes.
    pub values: Values,
    /// What holds without it, where [`Flag::show`] of the default design is not the whole answer.
    pub default: Option<&'static str>,
    /// What it does.
    pub help: &'static str,
    /// Puts a value into a choice, or says why it can't.
    pub set: fn(&mut Choice, &str) -> Result<(), String>,
    /// The value that a choice has.
    pub show: fn(&Choice) -> String,
}

/// Values that this version knows of and does not simulate: flag, value (a `*` stands for any end), why.
pub const NOT_SIMULATED: [(&str, &str, &str); 2] = [
    (
        "huge",
        "mthp-*",
        "the kernel has no such size of anonymous pages; use mthp-16K and its doubles up to mthp-1M, or thp",
    ),
    (
        "kernel",
        "*",
        "only rules of Linux 5.15, 6.1, 6.8, 6.12, 6.14 and 6.18 are simulated; use the nearest of them that is not newer",
    ),
];

/// Why a value that is no value of a flag is refused.
fn refuse(flag: &str, value: &str, known: &[&str]) -> String {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => value.starts_with(start),
        None => value == pattern,
    };
    match NOT_SIMULATED.iter().find(|(name, pattern, _)| *name == flag && matches(pattern)) {
        Some((.., why)) => format!("`{value}`: {why}"),
        None => format!("`{value}` is none of its values: {}", known.join(", ")),
    }
}

/// Whether a word is a value of `--huge`, simulated or not.
pub fn is_huge_value(word: &str) -> bool {
    let unsimulated = || NOT_SIMULATED.iter().filter(|(flag, ..)| *flag == "huge");
    Huge::from_word(word).is_some()
        || unsimulated()
            .any(|(_, pattern, _)| pattern.strip_suffix('*').map_or(word == *pattern, |start| word.starts_with(start)))
}

/// A flag whose values are the words of an enum of the design.
macro_rules! word_flag {
    ($name:literal, $type:ident, $field:ident, $help:literal) => {
        Flag {
            name: $name,
            subject: Subject::Policy,
            values: Values::Words(|| $type::ALL.iter().map(|value| value.word()).collect()),
            default: None,
            help: $help,
            set: |choice, word| {
                let known: Vec<&str> = $type::ALL.iter().map(|value| value.word()).collect();
                choice.design.$field = $type::from_word(word).ok_or_else(|| refuse($name, word, &known))?;
                Ok(())
            },
            show: |choice| choice.design.$field.word().to_string(),
        }
    };
}

/// A flag whose value is a number of the design.
macro_rules! number_flag {
    ($name:literal, $values:expr, $parse:ident, $show:expr, $field:ident, $help:literal) => {
        Flag {
            name: $name,
            subject: Subject::Policy,
            values: $values,
            default: None,
            help: $help,
            set: |choice, word| $parse(word).map(|value| choice.design.$field = value),
            show: |choice| $show(choice.design.$field),
        }
    };
}

/// Every policy flag, in the order of the help text.
pub const FLAGS: &[Flag] = &[
    number_flag!(
        "superslab",
        Values::Size("64K to 32M"),
        parse_size,
        show_size,
        superslab_bytes,
        "Size and alignment of a SuperSlab"
    ),
    number_flag!(
        "slab",
        Values::Size("16K to the SuperSlab"),
        parse_size,
        show_size,
        slab_bytes,
        "Size of a slab, which holds blocks of one size class; up to three such where fewer would waste over an eighth"
    ),
    word_flag!("classes", Classes, classes, "Size classes"),
    word_flag!(
        "header",
        Header,
        header,
        "Block headers: none; full: written at every allocation; light: if it differs; off: only if corrupt"
    ),
    number_flag!(
        "header-bytes",
        Values::Count("1 or 16"),
        parse_count_32,
        |bytes: u32| bytes.to_string(),
        header_bytes,
        "Bytes of a header, where there is one"
    ),
    word_flag!(
        "huge",
        Huge,
        huge,
        "Huge pages: never; thp: MADV_HUGEPAGE; thp-always: no advice, the kernel's mode is always; collapse: MADV_COLLAPSE \
         of a SuperSlab when its last slab is taken; mthp-SIZE: as thp, the kernel's largest size is SIZE; hugetlb: \
         MAP_HUGETLB, else thp; hugetlb-plain: else a plain map"
    ),
    word_flag!("prefault", Prefault, prefault, "How memory is made present before its first use"),
    word_flag!(
        "prefault-scope",
        PrefaultScope,
        prefault_scope,
        "What is prefaulted: each SuperSlab, each slab, or what is prewarmed at start"
    ),
    number_flag!(
        "prewarm",
        Values::Count("SuperSlabs"),
        parse_count_32,
        |count: u32| count.to_string(),
        prewarm_superslabs,
        "SuperSlabs reserved at start"
    ),
    number_flag!(
        "cache",
        Values::Count("SuperSlabs"),
        parse_count_32,
        |count: u32| count.to_string(),
        cache_superslabs,
        "Empty SuperSlabs kept for reuse"
    ),
    number_flag!(
        "huge-heaps",
        Values::Count("heaps"),
        parse_count_32,
        |count: u32| count.to_string(),
        huge_heaps,
        "Threads whose heaps get huge pages at once; those of further threads get them from their second SuperSlab on"
    ),
    number_flag!(
        "warm-slabs",
        Values::Count("slabs"),
        parse_count_32,
        |count: u32| count.to_string(),
        warm_slabs,
        "Empty slabs kept per size class beside the active one"
    ),
    word_flag!("purge", Purge, purge, "How unused memory is given back"),
    number_flag!(
        "purge-delay",
        Values::Time("ns, us, ms or s of the event clock"),
        parse_time,
        show_time,
        purge_delay_ns,
        "How long memory lies unused before it is purged"
    ),
    Flag {
        name: "purge-spans",
        subject: Subject::Policy,
        values: Values::Words(|| YES_NO.to_vec()),
        default: None,
        help: "Purge single empty slabs in spite of huge pages",
        set: |choice, word| {
            choice.design.purge_spans = match word {
                "yes" => true,
                "no" => false,
                _ => return Err(refuse("purge-spans", word, &YES_NO)),
            };
            Ok(())
        },
        show: |choice| YES_NO[usize::from(choice.design.purge_spans)].to_string(),
    },
    word_flag!(
        "align",
        Align,
        align,
        "Where SuperSlabs lie: arena: at multiples of their size in one map; trim: each on a map of its own, made too large and \
         trimmed; kernel: as the kernel aligns it, else trimmed"
    ),
    number_flag!("arena", Values::Size("64M to 16T"), parse_size, show_size, arena_bytes, "Address space of the arena"),
    word_flag!("meta", Meta, meta, "Where metadata lies: in the SuperSlab, or in a dense map of its own"),
    word_flag!(
        "carve",
        CarveRule,
        carve,
        "How fresh blocks are handed out: to the end of a page, one at a time, or the whole slab"
    ),
    number_flag!(
        "startup-touch",
        Values::Size("up to a quarter of the arena"),
        parse_size,
        show_size,
        startup_touch_bytes,
        "Bytes touched once at start"
    ),
    number_flag!(
        "huge-cache",
        Values::Size("0 for none"),
        parse_size,
        show_size,
        huge_cache_bytes,
        "Freed blocks above half a SuperSlab kept for reuse"
    ),
    Flag {
        name: "touch",
        subject: Subject::Program,
        values: Values::Words(touch_words),
        default: Some("recorded where the trace has touches, else all"),
        help: "Which bytes of its blocks the program touches",
        set: |choice, word| {
            let rule = TouchRule::from_word(word);
            choice.touch = Some(rule.ok_or_else(|| refuse("touch", word, &touch_words()))?);
            Ok(())
        },
        show: |choice| choice.touch.map_or("by trace", TouchRule::word).to_string(),
    },
    Flag {
        name: "memory-policy",
        subject: Subject::Program,
        values: Values::Words(memory_policy_words),
        default: Some("recorded"),
        help: "What the program asked of the kernel for all its memory (PR_SET_THP_DISABLE, mlockall): do it, or not",
        set: |choice, word| {
            let rule = PolicyRule::from_word(word);
            choice.memory_policy = rule.ok_or_else(|| refuse("memory-policy", word, &memory_policy_words()))?;
            Ok(())
        },
        show: |choice| choice.memory_policy.word().to_string(),
    },
    Flag {
        name: "kernel",
        subject: Subject::Kernel,
        values: Values::Words(kernel_words),
        default: Some("6.18; in validate this machine's"),
        help: "Version whose rules the simulated kernel follows (host: this machine's kernel with its modes, limits and hugetlb pool)",
        set: |choice, word| {
            let (base, version) = match word {
                "host" => (Some(BaseKernel::Host), host::version().map_err(|why| format!("{why:#}"))?),
                _ => {
                    let version = KernelVersion::from_word(word);
                    (None, version.ok_or_else(|| refuse("kernel", word, &kernel_words()))?)
                }
            };
            (choice.base, choice.kernel_version) = (base, Some(version));
            Ok(())
        },
        show: |choice| choice.kernel_version.unwrap_or(KernelVersion::NEWEST).word().to_string(),
    },
    Flag {
        name: "thp",
        subject: Subject::Kernel,
        values: Values::Words(|| THP_WORDS.map(|(word, _)| word).to_vec()),
        default: Some("madvise; in validate this machine's"),
        help: "Mode of the simulated kernel's transparent huge pages",
        set: |choice, word| {
            choice.thp =
                Some(thp_from_word(word).ok_or_else(|| refuse("thp", word, &THP_WORDS.map(|(word, _)| word)))?);
            Ok(())
        },
        show: |choice| choice.thp.map_or("by command", thp_word).to_string(),
    },
    Flag {
        name: "mthp",
        subject: Subject::Kernel,
        values: Values::Modes(
            "default, or SIZE=always|madvise|inherit|never, a comma between two: 64K=always,256K=madvise",
        ),
        default: Some("all off below 2M, or as --huge says; in validate this machine's"),
        help: "Modes of the simulated kernel's sizes of huge pages; those not named: off below 2M, 2M inherits",
        set: |choice, word| {
            choice.mthp = if word == DEFAULT_SIZES { None } else { Some(mthp::parse(word)?) };
            Ok(())
        },
        show: |choice| choice.mthp.map_or(DEFAULT_SIZES.to_string(), |sizes| mthp::show(&sizes)),
    },
    Flag {
        name: "hugetlb-pool",
        subject: Subject::Kernel,
        values: Values::Count("pages of 2 MiB"),
        default: Some("unlimited; in validate this machine's"),
        help: "Huge pages in the simulated kernel's pool",
        set: |choice, word| parse_count(word).map(|pages| choice.hugetlb_pool = Some(pages)),
        show: |choice| choice.hugetlb_pool.map_or("unlimited".to_string(), |pages| pages.to_string()),
    },
];

fn kernel_words() -> Vec<&'static str> {
    KernelVersion::ALL.iter().map(|version| version.word()).chain(["host"]).collect()
}

/// The modes that the kernel boots with, or those that the design's `--huge` stands for.
const DEFAULT_SIZES: &str = "default";

const YES_NO: [&str; 2] = ["no", "yes"];

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
    PolicyRule::ALL.map(PolicyRule::word).to_vec()
}

fn touch_words() -> Vec<&'static str> {
    TouchRule::ALL.map(TouchRule::word).to_vec()
}

impl Flag {
    /// Its values and their unit, in words.
    pub fn values_text(&self) -> String {
        match self.values {
            Values::Words(words) => words().join(", "),
            Values::Size(range) => format!("bytes; {range}"),
            Values::Count(what) => format!("number; {what}"),
            Values::Time(units) => format!("time; {units}"),
            Values::Modes(form) => form.to_string(),
        }
    }

    /// What holds without it.
    pub fn default_text(&self) -> String {
        self.default.map_or_else(|| (self.show)(&Choice::of(Design::default())), str::to_string)
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
        for flag in FLAGS {
            let Values::Words(words) = flag.values else { continue };
            for word in words().into_iter().filter(|word| *word != "host") {
                let mut choice = Choice::of(Design::default());
                (flag.set)(&mut choice, word).unwrap_or_else(|why| panic!("--{} {word}: {why}", flag.name));
                assert_eq!((flag.show)(&choice), word, "--{}", flag.name);
            }
        }
    }

    #[test]
    fn values_not_simulated_are_refused_by_name() {
        for (name, value) in [("huge", "mthp-2M"), ("kernel", "6.6")] {
            let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else { panic!("--{name} is gone") };
            let why = (flag.set)(&mut Choice::of(Design::default()), value).unwrap_err();
            assert!(!why.contains("none of its values"), "--{name} {value}: {why}");
        }
    }

    #[test]
    fn only_names_of_values_follow_huge() {
        assert!(
            ["never", "thp", "hugetlb", "hugetlb-plain", "collapse", "mthp-64K"].iter().all(|word| is_huge_value(word))
        );
        assert!(!["app.hkt", "", "thp2", "Never", "x"].iter().any(|word| is_huge_value(word)));
    }
}
