//! Settings of other allocators that come closest to a flag of the policy, so that advice can be tried today.
//!
//! `knobs.tsv` has one setting per line, with the document that describes it. A setting does not make the allocator
//! equal to a design: sizes of slabs and SuperSlabs have no counterpart. `hksim compare` measures what it does.

use hksim_policy::Policy;
use hksim_policy::flags::Flag;
use hksim_policy::vocabulary::Purge;
use serde::Serialize;

const KNOBS: &str = include_str!("knobs.tsv");

/// Stands for a time in milliseconds.
const MILLISECONDS: &str = "{ms}";

/// A setting of an allocator for one flag of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The flag, without dashes.
    pub flag: &'static str,
    /// The policy's value of the flag.
    pub value: String,
    /// The allocator.
    pub allocator: &'static str,
    /// The environment variable to set.
    pub setting: String,
    /// What it does.
    pub effect: &'static str,
    /// Document, version and address.
    pub source: &'static str,
}

/// The settings that correspond to a policy, in the order of the table.
pub fn settings(policy: &Policy) -> Vec<Setting> {
    KNOBS.lines().skip(1).filter_map(|line| setting(line, policy)).collect()
}

fn setting(line: &'static str, policy: &Policy) -> Option<Setting> {
    let fields: Vec<&'static str> = line.split('\t').collect();
    let [flag, wanted, allocator, setting, effect, source] = fields[..] else { return None };
    let value = Flag::find(flag)?.show(policy).to_string();
    // Without purging, a delay has no meaning.
    let is_unused = flag == "purge-delay" && policy.purge == Purge::None;
    let matches = wanted == MILLISECONDS || wanted == value;
    let milliseconds = (policy.purge_delay_ns / 1_000_000).to_string();
    (matches && !is_unused).then(|| Setting {
        flag,
        value,
        allocator,
        setting: setting.replace(MILLISECONDS, &milliseconds),
        effect,
        source,
    })
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
            if fields[1] != MILLISECONDS {
                let mut policy = Policy::default();
                flag.set(&mut policy, fields[1]).unwrap_or_else(|why| panic!("{line}: {why}"));
                assert!(settings(&policy).iter().any(|found| found.source == fields[5]), "{line}");
            }
            assert!(
                fields[5].contains("https://") && fields[5].contains(|letter: char| letter.is_ascii_digit()),
                "{line}"
            );
        }
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
