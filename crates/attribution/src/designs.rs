//! Designs that are tried by simulation: policies of SuperSlab, and for large blocks with mappings of their own the designs
//! that have such mappings.

use hksim_designs::{DesignWords, all};
use hksim_explore::described::Described;
use hksim_explore::error::ExploreError;
use hksim_explore::flags::BaseKernel;
use hksim_explore::runs::setup_of;
use hksim_policy::flags::Flag;
use hksim_policy::{PAGE_BYTES, Policy};
use hksim_sim::SimConfig;

use crate::breakdown::CauseKey;
use crate::error::AttributionError;
use crate::explained::Explained;
use crate::reason::Reason;
use crate::remedies::{Question, Remedy, Tried};

/// How much more peak RSS a design may have than the library.
const RSS_ALLOWED: f64 = 1.05;

/// Flags of the policies that are simulated.
const POLICIES: [&[(&str, &str)]; 5] = [
    &[("huge", "thp")],
    &[("huge", "never")],
    &[("huge", "never"), ("purge", "none")],
    &[("huge", "never"), ("warm-slabs", "8")],
    &[("huge", "never"), ("purge-delay", "0")],
];

/// The design that has the fewest installs without more peak RSS; if all have more, the one with the least.
pub(crate) fn nearest(
    question: &Question<'_>,
    before: &Explained,
    causes: &[CauseKey],
) -> Result<Option<Tried>, AttributionError> {
    let policies: Vec<(String, Policy)> = POLICIES.iter().filter_map(|flags| policy(flags)).collect();
    let mut tried = simulated(question, policies)?;
    tried.extend(simulated(question, with_mapped_blocks(before, causes))?);
    let allowed = (before.totals.rss_bytes_peak as f64 * RSS_ALLOWED) as u64;
    // Those within the limit by installs, the others after them by RSS.
    let rank = |tried: &Tried| match tried.rss_bytes_peak {
        rss if rss <= allowed => (0, tried.installs),
        rss => (1, rss),
    };
    Ok(tried.into_iter().min_by_key(rank))
}

/// Simulates designs, and leaves out those that refuse requests.
fn simulated<P: Described>(question: &Question<'_>, designs: Vec<(String, P)>) -> Result<Vec<Tried>, AttributionError> {
    let setups = designs.iter().map(|(_, design)| {
        setup_of(design.clone(), question.config, question.trace, BaseKernel::AsItComes).map_err(ExploreError::from)
    });
    let setups = setups.collect::<Result<Vec<SimConfig<P>>, _>>()?;
    let reports = P::sweep(&question.trace.input, &setups, &*question.listener.begin(), &|_, _| {})?;
    let served = designs.into_iter().zip(reports).filter(|(_, report)| report.requests_failed == 0);
    let tried = served.map(|((flags, _), report)| Tried {
        remedy: Remedy::Design(flags),
        installs: report.installs.total,
        rss_bytes_peak: report.rss_bytes_peak,
        installs_of_causes: None,
    });
    Ok(tried.collect())
}

/// If blocks with mappings of their own are among the causes: each design that has such mappings and a cache of them, from the
/// same size of blocks on and with a cache for all of them.
fn with_mapped_blocks(before: &Explained, causes: &[CauseKey]) -> Vec<(String, hksim_designs::Label)> {
    const FLAGS: [&str; 2] = ["large-threshold", "large-cache"];
    let mapped = causes.iter().filter(|key| key.reason == Reason::MappingPerBlock);
    let least = mapped.filter_map(|key| before.breakdown.causes.get(key)?.request_bytes_min).min();
    let Some(least) = least else { return Vec::new() };
    let threshold = (least / PAGE_BYTES).max(1) * PAGE_BYTES;
    let cache = (before.totals.rss_bytes_peak + 1).next_power_of_two();
    let designs = all().into_iter().filter(|about| FLAGS.iter().all(|flag| about.setting(flag).is_some()));
    let named = designs.filter_map(|about| {
        let [first, second] = FLAGS;
        let words = DesignWords::of_word(&format!("{}+{first}={threshold}+{second}={cache}", about.name)).ok()?;
        let flags = format!("--design {} --{first} {threshold} --{second} {cache}", about.name);
        Some((flags, words.label(&|_| ()).ok()?))
    });
    named.collect()
}

fn policy(flags: &[(&str, &str)]) -> Option<(String, Policy)> {
    let mut policy = Policy::default();
    for &(name, value) in flags {
        Flag::find(name)?.set(&mut policy, value).ok()?;
    }
    let words: Vec<String> = flags.iter().map(|(name, value)| format!("--{name} {value}")).collect();
    Some((words.join(" "), policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_valid() {
        for flags in POLICIES {
            let (words, policy) = policy(flags).unwrap_or_else(|| panic!("{flags:?}"));
            assert!(policy.prepare().is_ok(), "{words}");
        }
    }
}
