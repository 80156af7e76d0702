//! Settings of other allocators that come closest to a flag of the policy, so that advice can be tried today.
//!
//! `knobs.tsv` has one setting per line, with the document that describes it. A setting does not make the allocator
//! equal to a design: sizes of slabs and SuperSlabs have no counterpart. `hksim compare` measures what it does.

use std::borrow::Cow;

use hksim_policy::Policy;
use hksim_policy::flags::Flag;
use hksim_policy::vocabulary::Purge;
use serde::{Deserialize, Serialize};

const KNOBS: &str = include_str!("knobs.tsv");

/// Stands for a number in the table: any value of its flag, except those for which [`number`] has none.
const NUMBER: &str = "{}";

/// The greatest threshold that glibc accepts (`DEFAULT_MMAP_THRESHOLD_MAX` of 64-bit systems).
const MMAP_THRESHOLD_MAX: u64 = 32 << 20;

/// A setting of an allocator for one flag of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The flag, without dashes.
    pub flag: Cow<'static, str>,
    /// The policy's value of the flag.
    pub value: String,
    /// The allocator.
    pub allocator: Cow<'static, str>,
    /// The environment variable to set.
    pub setting: String,
    /// What it does.
    pub effect: Cow<'static, str>,
    /// Document, version and address.
    pub source: Cow<'static, str>,
}

/// The settings that correspond to a policy, in the order of the table.
pub fn settings(policy: &Policy) -> Vec<Setting> {
    KNOBS.lines().skip(1).filter_map(|line| setting(line, policy)).collect()
}

fn setting(line: &'static str, policy: &Policy) -> Option<Setting> {
    let fields: Vec<&'static str> = line.split('\t').collect();
    let [flag, wanted, allocator, setting, effect, source] = fields[..] else { return None };
    let value = Flag::find(flag)?.show(policy).to_string();
    let setting = match wanted {
        NUMBER => setting.replace(NUMBER, &number(flag, policy)?.to_string()),
        _ if wanted == value => setting.to_string(),
        _ => return None,
    };
    let [flag, allocator, effect, source] = [flag, allocator, effect, source].map(Cow::Borrowed);
    Some(Setting { flag, value, allocator, setting, effect, source })
}

/// The number of a flag in the unit of other allocators' settings: milliseconds, blocks or KiB, but bytes for
/// `huge-cache`. `None` if nothing corresponds to the value.
fn number(flag: &str, policy: &Policy) -> Option<u64> {
    let number = match flag {
        // Without purging, a delay has no meaning.
        "purge-delay" => return (policy.purge != Purge::None).then_some(policy.purge_delay_ns / 1_000_000),
        "front-cache" => u64::from(policy.front_cache),
        "huge-cache" => Some(policy.huge_cache_bytes).filter(|&bytes| bytes <= MMAP_THRESHOLD_MAX)?,
        "prewarm" => (u64::from(policy.prewarm_superslabs) * policy.superslab_bytes) >> 10,
        _ => return None,
    };
    (number > 0).then_some(number)
}

/// The variables of an allocator that several settings use, each with these settings joined: set one after the other,
/// only the last would count.
pub fn joined(settings: &[Setting]) -> Vec<String> {
    let of_variable = |(variable, separator): &(&str, &str)| {
        let values = settings.iter().filter_map(|one| one.setting.strip_prefix(variable)?.strip_prefix('='));
        let values: Vec<&str> = values.collect();
        (values.len() > 1).then(|| format!("{variable}={}", values.join(separator)))
    };
    [("GLIBC_TUNABLES", ":"), ("MALLOC_CONF", ",")].iter().filter_map(of_variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_known_flag_value_and_source() {
        for line in KNOBS.lines().skip(1) {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(fields.len(), 6, "{line}");
            let flag = Flag::find(fields[0]).unwrap_or_else(|| panic!("{line}"));
            let value = match (fields[1], fields[0]) {
                (NUMBER, "purge-delay") => "2500ms",
                (NUMBER, "huge-cache") => "8M",
                (NUMBER, _) => "16",
                (value, _) => value,
            };
            let mut policy = Policy::default();
            flag.set(&mut policy, value).unwrap_or_else(|why| panic!("{line}: {why}"));
            let found = settings(&policy);
            assert!(found.iter().any(|found| found.flag == fields[0] && found.source == fields[5]), "{line}");
            assert!(found.iter().all(|found| !found.setting.contains(['{', '}'])), "{line}");
            assert!(
                fields[5].contains("https://") && fields[5].contains(|letter: char| letter.is_ascii_digit()),
                "{line}"
            );
        }
    }

    #[test]
    fn numbers_have_the_unit_of_the_setting_and_none_is_no_setting() {
        let policy = Policy { front_cache: 16, huge_cache_bytes: 8 << 20, prewarm_superslabs: 2, ..Policy::default() };
        let all = |policy: &Policy| settings(policy).into_iter().map(|found| found.setting).collect::<Vec<_>>();
        for setting in [
            "GLIBC_TUNABLES=glibc.malloc.tcache_count=16",
            "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=8388608",
            "MIMALLOC_RESERVE_OS_MEMORY=4096K",
        ] {
            assert!(all(&policy).contains(&setting.to_string()), "{setting}");
        }
        let none = all(&Policy { front_cache: 0, huge_cache_bytes: 0, prewarm_superslabs: 0, ..policy }).join(" ");
        assert!(!none.contains("tcache") && !none.contains("mmap_threshold") && !none.contains("RESERVE"), "{none}");
        assert!(!all(&Policy { huge_cache_bytes: 64 << 20, ..policy }).join(" ").contains("mmap_threshold"));
    }

    #[test]
    fn settings_of_one_variable_are_joined() {
        let policy = Policy { front_cache: 16, purge_delay_ns: 10_000_000, ..Policy::default() };
        assert_eq!(
            joined(&settings(&policy)),
            [
                "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=16",
                "MALLOC_CONF=thp:always,muzzy_decay_ms:0,dirty_decay_ms:10,tcache:true",
            ]
        );
        assert!(joined(&settings(&policy)[..1]).is_empty());
    }

    #[test]
    fn the_delay_is_in_milliseconds_and_absent_without_purging() {
        let mut policy = Policy { purge_delay_ns: 2_500_000_000, ..Policy::default() };
        let all = |policy: &Policy| settings(policy).into_iter().map(|found| found.setting).collect::<Vec<_>>();
        assert!(all(&policy).contains(&"MIMALLOC_PURGE_DELAY=2500".to_string()));
        policy.purge = Purge::None;
        assert!(!all(&policy).contains(&"MIMALLOC_PURGE_DELAY=2500".to_string()));
        assert!(all(&policy).contains(&"MIMALLOC_PURGE_DELAY=-1".to_string()));
    }
}
