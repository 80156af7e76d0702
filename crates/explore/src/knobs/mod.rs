//! Settings of other allocators that come closest to a flag of the policy, so that advice can be tried today.
//!
//! `knobs.tsv` has one setting per line: the versions for which it holds, what it does, how that shows, and the document
//! that describes it. `testkit/tests/settings` plays each line on the libraries of this machine. A setting does not make
//! the allocator equal to a design: sizes of slabs and SuperSlabs have no counterpart. `hksim compare` measures what it
//! does.

mod alternatives;
mod versions;

use std::borrow::Cow;

use hksim_policy::Policy;
use hksim_policy::flags::Flag;
use hksim_policy::vocabulary::Purge;
use serde::{Deserialize, Serialize};

pub use alternatives::alternatives;
pub use versions::{Version, Versions};

const KNOBS: &str = include_str!("knobs.tsv");

/// Stands for a number in the table: any value of its flag, except those for which `number` has none.
pub const NUMBER: &str = "{}";

/// Stands for "none" in a column of the table.
const NONE: &str = "-";

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Knob {
    /// The flag of the policy whose meaning comes closest, without dashes; `None` if none does.
    pub flag: Option<&'static str>,
    /// The value of the flag: a word, [`NUMBER`], or `{<=MAX}` for numbers up to a maximum.
    pub value: &'static str,
    /// The allocator.
    pub allocator: &'static str,
    /// Versions of the allocator, as [`Versions`] reads them.
    pub versions: &'static str,
    /// Environment variables, separated by blanks. [`NUMBER`] stands for the flag's number; a word in capitals is the
    /// user's to fill in.
    pub setting: &'static str,
    /// The setting that the effect is compared with; `None` for the allocator without settings.
    pub against: Option<&'static str>,
    /// What it does; begins with "the default" if the allocator does so without it.
    pub effect: &'static str,
    /// How that shows: a load, a figure of it, and how the figure changes.
    pub observable: &'static str,
    /// Document, version and address.
    pub source: &'static str,
}

impl Knob {
    fn of(line: &'static str) -> Option<Knob> {
        let fields: Vec<&'static str> = line.split('\t').collect();
        let [flag, value, allocator, versions, setting, against, effect, observable, source] = fields[..] else {
            return None;
        };
        let some = |word: &'static str| (word != NONE).then_some(word);
        let (flag, against) = (some(flag), some(against));
        Some(Knob { flag, value, allocator, versions, setting, against, effect, observable, source })
    }

    /// Whether the line holds for a version of its allocator.
    pub fn holds_for(&self, version: &str) -> bool {
        may_be(Some(version), self.versions)
    }

    /// The number that replaces [`NUMBER`] for a policy; `None` if the line is for another value of its flag. A line
    /// for a word has no number.
    fn applies(&self, flag: &Flag, policy: &Policy) -> Option<Option<u64>> {
        let Some(range) = self.value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
            return (flag.show(policy).to_string() == self.value).then_some(None);
        };
        let maximum = range.strip_prefix("<=").map_or(Some(u64::MAX), |maximum| maximum.parse().ok())?;
        number(flag.name, policy).filter(|&number| number <= maximum).map(Some)
    }
}

/// The lines of the table, in order.
pub fn knobs() -> impl Iterator<Item = Knob> {
    KNOBS.lines().skip(1).filter_map(Knob::of)
}

/// A setting of an allocator for one flag of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The flag, without dashes.
    pub flag: Cow<'static, str>,
    /// The policy's value of the flag.
    pub value: String,
    /// The allocator.
    pub allocator: Cow<'static, str>,
    /// Versions of the allocator for which the setting holds: `2.35+` and later, `2.1-2` from 2.1 to the last of 2.
    #[serde(default)]
    pub versions: Cow<'static, str>,
    /// The version on this machine, which is one of them; null if the allocator is missing or does not tell.
    #[serde(default)]
    pub installed: Option<String>,
    /// The environment variables to set, separated by blanks.
    pub setting: String,
    /// What it does.
    pub effect: Cow<'static, str>,
    /// How that shows: a load, a figure of it, and how the figure changes.
    #[serde(default)]
    pub observable: String,
    /// Document, version and address.
    pub source: Cow<'static, str>,
}

/// The settings that correspond to a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Settings, in the order of the table.
    pub settings: Vec<Setting>,
    /// Settings that are not offered because of another one, as sentences.
    pub refused: Vec<String>,
}

/// Two settings of an allocator which together do not do what each does alone.
struct Conflict {
    allocator: &'static str,
    versions: &'static str,
    refused: &'static str,
    beside: &'static str,
    why: &'static str,
}

const CONFLICTS: [Conflict; 1] = [Conflict {
    allocator: "jemalloc",
    // 5.3.1 frees with MADV_FREE, as one expects.
    versions: "5.1-5.3.0",
    refused: "MALLOC_CONF=dirty_decay_ms:0",
    beside: "MALLOC_CONF=muzzy_decay_ms:-1",
    why: "jemalloc up to 5.3.0 then drops unused pages with MADV_DONTNEED, and frees none with MADV_FREE",
}];

/// The settings that correspond to a policy. `version` tells the version of an allocator on this machine; lines that
/// do not hold for it are left out. If the version is unknown, all lines are candidates.
pub fn settings(policy: &Policy, version: impl Fn(&str) -> Option<String>) -> Offer {
    let mut offer =
        Offer { settings: knobs().filter_map(|knob| setting(&knob, policy, &version)).collect(), ..Offer::default() };
    for conflict in
        CONFLICTS.iter().filter(|conflict| may_be(version(conflict.allocator).as_deref(), conflict.versions))
    {
        let has = |text: &str| {
            let is_it = |one: &Setting| one.allocator == conflict.allocator && one.setting == text;
            offer.settings.iter().position(is_it)
        };
        if let (Some(refused), Some(_)) = (has(conflict.refused), has(conflict.beside)) {
            let gone = offer.settings.remove(refused);
            offer.refused.push(format!(
                "No setting of {} for --{} {}: {} excludes {}, because {}.",
                gone.allocator, gone.flag, gone.value, conflict.beside, conflict.refused, conflict.why
            ));
        }
    }
    offer
}

fn setting(knob: &Knob, policy: &Policy, version: &impl Fn(&str) -> Option<String>) -> Option<Setting> {
    let flag = Flag::find(knob.flag?)?;
    let number = knob.applies(flag, policy)?.map(|number| number.to_string());
    let installed = version(knob.allocator);
    if !may_be(installed.as_deref(), knob.versions) {
        return None;
    }
    let filled = |text: &str| number.as_ref().map_or(text.to_string(), |number| text.replace(NUMBER, number));
    let borrowed = Cow::Borrowed;
    Some(Setting {
        flag: borrowed(flag.name),
        value: flag.show(policy).to_string(),
        allocator: borrowed(knob.allocator),
        versions: borrowed(knob.versions),
        installed,
        setting: filled(knob.setting),
        effect: borrowed(knob.effect),
        observable: filled(knob.observable),
        source: borrowed(knob.source),
    })
}

/// Whether an installed version is in ranges. One that is unknown may be.
fn may_be(installed: Option<&str>, versions: &str) -> bool {
    let (Some(installed), Some(versions)) = (installed.and_then(Version::parse), Versions::parse(versions)) else {
        return true;
    };
    versions.contain(&installed)
}

/// The number of a flag in the unit of other allocators' settings: milliseconds, blocks or KiB, but bytes for
/// `huge-cache`. `None` if nothing corresponds to the value.
fn number(flag: &str, policy: &Policy) -> Option<u64> {
    let number = match flag {
        // Without purging, a delay has no meaning.
        "purge-delay" => return (policy.purge != Purge::None).then_some(policy.purge_delay_ns / 1_000_000),
        "front-cache" => u64::from(policy.front_cache),
        "huge-cache" => policy.huge_cache_bytes,
        "prewarm" => (u64::from(policy.prewarm_superslabs) * policy.superslab_bytes) >> 10,
        _ => return None,
    };
    (number > 0).then_some(number)
}

/// The variables of an allocator that several settings use, each with these settings joined: set one after the other,
/// only the last would count. Of settings for different versions, the last one is taken.
pub fn joined(settings: &[Setting]) -> Vec<String> {
    let is_last = |at: usize| {
        let same = |later: &Setting| (&later.flag, &later.allocator) == (&settings[at].flag, &settings[at].allocator);
        !settings[at + 1..].iter().any(same)
    };
    let last: Vec<&Setting> = (0..settings.len()).filter(|&at| is_last(at)).map(|at| &settings[at]).collect();
    let of_variable = |(variable, separator): &(&str, &str)| {
        let values = last.iter().filter_map(|one| one.setting.strip_prefix(variable)?.strip_prefix('='));
        let values: Vec<&str> = values.collect();
        (values.len() > 1).then(|| format!("{variable}={}", values.join(separator)))
    };
    [("GLIBC_TUNABLES", ":"), ("MALLOC_CONF", ",")].iter().filter_map(of_variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings where no version is known.
    fn all(policy: &Policy) -> Vec<String> {
        settings(policy, |_| None).settings.into_iter().map(|found| found.setting).collect()
    }

    /// The settings where one allocator's version is known.
    fn with(policy: &Policy, allocator: &str, version: &str) -> Vec<String> {
        let offer = settings(policy, |name| (name == allocator).then(|| version.to_string()));
        offer.settings.into_iter().filter(|found| found.allocator == allocator).map(|found| found.setting).collect()
    }

    #[test]
    fn every_line_has_known_words_and_a_source() {
        assert_eq!(knobs().count(), KNOBS.lines().count() - 1, "each line has all columns");
        for knob in knobs() {
            assert!(Versions::parse(knob.versions).is_some(), "{knob:?}");
            assert!(
                knob.source.contains("https://") && knob.source.contains(|letter: char| letter.is_ascii_digit()),
                "{knob:?}"
            );
            assert!(!knob.effect.is_empty() && knob.setting.contains('='), "{knob:?}");
            let Some(name) = knob.flag else {
                assert_eq!(knob.value, NONE, "{knob:?}");
                continue;
            };
            let Some(flag) = Flag::find(name) else {
                assert_eq!(name, "thp-prctl", "the one flag that is not of the allocator: {knob:?}");
                continue;
            };
            let value = match name {
                _ if !knob.value.starts_with('{') => knob.value,
                "purge-delay" => "2500ms",
                "huge-cache" => "8M",
                _ => "16",
            };
            let mut policy = Policy::default();
            flag.set(&mut policy, value).unwrap_or_else(|why| panic!("{knob:?}: {why}"));
            let found = settings(&policy, |_| None).settings;
            let own = found
                .iter()
                .find(|found| found.flag == name && found.source == knob.source && found.versions == knob.versions);
            assert!(
                own.is_some_and(|own| ![&own.setting, &own.observable].iter().any(|text| text.contains(['{', '}']))),
                "{knob:?}"
            );
        }
    }

    #[test]
    fn numbers_have_the_unit_of_the_setting_and_none_is_no_setting() {
        let policy = Policy { front_cache: 16, huge_cache_bytes: 8 << 20, prewarm_superslabs: 2, ..Policy::default() };
        for setting in [
            "GLIBC_TUNABLES=glibc.malloc.tcache_count=16",
            "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=8388608:glibc.malloc.trim_threshold=8388608",
            "MIMALLOC_RESERVE_OS_MEMORY=4096K",
        ] {
            assert!(all(&policy).contains(&setting.to_string()), "{setting}");
        }
        let none = all(&Policy { front_cache: 0, huge_cache_bytes: 0, prewarm_superslabs: 0, ..policy }).join(" ");
        assert!(!none.contains("tcache") && !none.contains("mmap_threshold") && !none.contains("RESERVE"), "{none}");
    }

    #[test]
    fn lines_that_do_not_hold_for_the_installed_version_are_left_out() {
        let policy = Policy { huge_cache_bytes: 64 << 20, purge_delay_ns: 20_000_000, ..Policy::default() };
        let is_there = |version: &str| with(&policy, "glibc", version).join(" ").contains("mmap_threshold");
        assert!(is_there("2.36") && !is_there("2.31"), "before 2.36 the threshold is at most 32 MiB");
        assert!(
            with(&Policy { huge_cache_bytes: 32 << 20, ..policy }, "glibc", "2.31").join(" ").contains("threshold")
        );
        assert!(with(&policy, "glibc", "2.34").iter().all(|setting| !setting.contains("hugetlb")));
        let delay = |version| {
            with(&policy, "mimalloc", version).into_iter().filter(|one| one.contains("DELAY")).collect::<Vec<_>>()
        };
        assert_eq!(delay("2.0.9"), ["MIMALLOC_SEGMENT_DECOMMIT_DELAY=20"]);
        assert_eq!(delay("2.3.2"), ["MIMALLOC_PURGE_DELAY=20 MIMALLOC_ARENA_PURGE_MULT=1"]);
        assert_eq!(delay("3.3.2"), ["MIMALLOC_PURGE_DELAY=20"]);
    }

    #[test]
    fn settings_of_one_variable_are_joined() {
        let policy = Policy { front_cache: 16, purge_delay_ns: 10_000_000, huge_cache_bytes: 0, ..Policy::default() };
        let known = |name: &str| match name {
            "glibc" => Some("2.36".to_string()),
            "jemalloc" => Some("5.3.0".to_string()),
            _ => None,
        };
        let settings = settings(&policy, known).settings;
        assert_eq!(
            joined(&settings),
            [
                "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=16",
                "MALLOC_CONF=thp:always,muzzy_decay_ms:0,dirty_decay_ms:10,tcache:true",
            ]
        );
        assert!(joined(&settings[..1]).is_empty());
        let unknown = joined(&super::settings(&policy, |_| None).settings);
        assert!(unknown.iter().any(|text| text.ends_with(",tcache_ncached_max:8-32768:16")), "{unknown:?}");
    }

    #[test]
    fn the_delay_is_in_milliseconds_and_absent_without_purging() {
        let mut policy = Policy { purge_delay_ns: 2_500_000_000, ..Policy::default() };
        assert!(all(&policy).contains(&"MIMALLOC_PURGE_DELAY=2500".to_string()));
        policy.purge = Purge::None;
        assert!(!all(&policy).contains(&"MIMALLOC_PURGE_DELAY=2500".to_string()));
        assert!(all(&policy).contains(&"MIMALLOC_PURGE_DELAY=-1".to_string()));
    }

    #[test]
    fn a_pair_that_defeats_itself_is_refused_with_the_reason() {
        let of_version = |delay_ns: u64, version: Option<&str>| {
            let policy = Policy { purge: Purge::Free, purge_delay_ns: delay_ns, ..Policy::default() };
            settings(&policy, |_| version.map(String::from))
        };
        let offer = |delay_ns: u64| of_version(delay_ns, None);
        let of_jemalloc = |offer: &Offer| joined(&offer.settings).join(" ");
        let at_once = offer(0);
        assert!(!of_jemalloc(&at_once).contains("dirty_decay_ms"), "{:?}", at_once.settings);
        assert!(of_jemalloc(&at_once).contains("muzzy_decay_ms:-1"), "{:?}", at_once.settings);
        assert!(matches!(&at_once.refused[..], [why] if why.contains("--purge-delay 0") && why.contains("MADV_FREE")));
        let later = offer(100_000_000);
        assert!(of_jemalloc(&later).contains("muzzy_decay_ms:-1,dirty_decay_ms:100"), "{:?}", later.settings);
        assert!(later.refused.is_empty());
        assert_eq!(of_version(0, Some("5.3.0")).refused, at_once.refused);
        assert!(of_version(0, Some("5.3.1")).refused.is_empty(), "corrected there");
    }
}
