//! The causes of installs, and the policy changes that remove them.
//!
//! A cause is all installs with one reason. Prefaulting at the allocator's start is a cause of its own. Its remedies are the policy changes
//! that can affect this reason; which of them helps is not assumed: each is simulated.

use hksim_policy::Policy;
use hksim_policy::flags::Flag;
use hksim_sim::accounting::Reason;
use hksim_sim::explain::Breakdown;
use hksim_sim::memory::PageUse;

/// Installs with one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The reason.
    pub reason: Reason,
    /// Whether they prefault memory at the allocator's start.
    pub at_start: bool,
    /// Their number.
    pub installs: u64,
    /// The use of most of their pages.
    pub main_use: PageUse,
    /// How many of the installs are for pages with that use.
    pub main_installs: u64,
}

impl Cause {
    /// Whether one use stands out: at least half of the installs are for pages with it.
    pub fn has_main_use(&self) -> bool {
        2 * self.main_installs >= self.installs
    }
}

/// The causes with the most installs, at most `count`, in descending order.
pub fn largest(breakdown: &Breakdown, count: usize) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for (key, &installs) in &breakdown.causes {
        // Other settings decide what is made present at the start.
        let at_start = key.at_start && matches!(key.reason, Reason::Prefault | Reason::Populated);
        let known = causes.iter_mut().find(|cause| (cause.reason, cause.at_start) == (key.reason, at_start));
        match known {
            Some(cause) => {
                cause.installs += installs;
                if installs > cause.main_installs {
                    (cause.main_use, cause.main_installs) = (key.page_use, installs);
                }
            }
            None => causes.push(Cause {
                reason: key.reason,
                at_start,
                installs,
                main_use: key.page_use,
                main_installs: installs,
            }),
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.installs));
    causes.truncate(count);
    causes
}

/// A policy change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The flags that change, as they can be added to the command line: `--purge none`.
    pub flags: String,
    /// The changed policy.
    pub policy: Policy,
}

/// The changes that can affect a reason: flags with values. Each entry is one change.
fn changes(cause: &Cause) -> &'static [&'static [(&'static str, &'static str)]] {
    match cause.reason {
        Reason::Prefault if cause.at_start => {
            &[&[("startup-touch", "0")], &[("prewarm", "0")], &[("startup-touch", "0"), ("prewarm", "0")]]
        }
        Reason::Populated if cause.at_start => &[&[("prewarm", "0")], &[("prefault", "off")]],
        Reason::Prefault | Reason::Populated => {
            &[&[("prefault", "off")], &[("prefault-scope", "slab")], &[("prefault-scope", "init")], &[("huge", "thp")]]
        }
        Reason::RefaultAfterPurge => &[
            &[("purge", "none")],
            &[("purge-delay", "1s")],
            &[("purge-delay", "10s")],
            &[("purge-spans", "no")],
            &[("cache", "64")],
            &[("warm-slabs", "8")],
        ],
        Reason::RefaultAfterSplit => {
            &[&[("purge-spans", "no")], &[("purge", "none")], &[("purge-delay", "1s")], &[("purge-delay", "10s")]]
        }
        Reason::AlignmentExcess => &[&[("align", "arena")], &[("prefault", "populate-write")], &[("prefault", "off")]],
        Reason::Header | Reason::WriteAfterZeroPage => {
            &[&[("header", "none")], &[("header", "full")], &[("huge", "thp")]]
        }
        Reason::FreeList => &[&[("carve", "page")], &[("carve", "bump")], &[("huge", "thp")]],
        Reason::Metadata => {
            &[&[("meta", "sidecar")], &[("meta", "inband")], &[("superslab", "8M")], &[("huge", "thp")]]
        }
        Reason::Application | Reason::Zeroing | Reason::Copy | Reason::Collapsed => &[
            &[("huge", "thp")],
            &[("superslab", "2M"), ("huge", "thp")],
            &[("huge-heaps", "1000")],
            &[("slab-choice", "lowest")],
            &[("slab", "16K")],
            &[("slab", "32K")],
            &[("classes", "default")],
        ],
        // A program that writes while its child lives copies pages under any policy; huge pages copy in fewer steps.
        Reason::CowAfterFork => &[&[("huge", "thp")], &[("huge", "never")]],
    }
}

/// The policy changes that may remove a cause, without those that change nothing or are impossible.
pub fn remedies(policy: &Policy, cause: &Cause) -> Vec<Remedy> {
    let remedy = |change: &&[(&str, &str)]| {
        let mut changed = *policy;
        for &(name, value) in *change {
            Flag::find(name)?.set(&mut changed, value).ok()?;
        }
        let differs = |&&(name, _): &&(&str, &str)| {
            Flag::find(name).is_some_and(|flag| flag.show(&changed).to_string() != flag.show(policy).to_string())
        };
        let flags: Vec<String> =
            change.iter().filter(differs).map(|(name, value)| format!("--{name} {value}")).collect();
        (!flags.is_empty() && changed.prepare().is_ok()).then(|| Remedy { flags: flags.join(" "), policy: changed })
    };
    let mut remedies: Vec<Remedy> = Vec::new();
    for remedy in changes(cause).iter().filter_map(remedy) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    remedies
}

/// A simulated remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The change.
    pub remedy: Remedy,
    /// Installs with it.
    pub installs: u64,
    /// Peak resident bytes with it.
    pub rss_bytes_peak: u64,
}

/// Share of the best remedy's effect that a cheaper remedy must have to be preferred.
const NEARLY_ALL: f64 = 0.9;

/// The remedy to name: of those that remove nearly as many installs as the best, the one with the least peak RSS; of
/// equal ones, the first. `None` if none removes any.
pub fn best(tried: &[Tried], installs_before: u64) -> Option<&Tried> {
    let removed = |tried: &Tried| installs_before.saturating_sub(tried.installs);
    let most = tried.iter().map(removed).max().filter(|&most| most > 0)?;
    let suffices = |tried: &&Tried| removed(tried) as f64 >= NEARLY_ALL * most as f64;
    tried.iter().filter(suffices).min_by_key(|tried| tried.rss_bytes_peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_a_valid_setting() {
        for reason in Reason::ALL {
            for at_start in [false, true] {
                let cause = Cause { reason, at_start, installs: 1, main_use: PageUse::Unused, main_installs: 1 };
                for &(name, value) in changes(&cause).iter().flat_map(|change| change.iter()) {
                    let flag = Flag::find(name).unwrap_or_else(|| panic!("no flag {name}"));
                    flag.set(&mut Policy::default(), value).unwrap_or_else(|error| panic!("--{name} {value}: {error}"));
                }
            }
        }
    }

    #[test]
    fn a_cheap_remedy_that_nearly_suffices_is_preferred() {
        let tried = |flags: &str, installs, rss_bytes_peak| Tried {
            remedy: Remedy { flags: flags.into(), policy: Policy::default() },
            installs,
            rss_bytes_peak,
        };
        let all = [tried("best", 0, 900), tried("cheap", 9, 100), tried("weak", 50, 10), tried("worse", 200, 1)];
        assert_eq!(best(&all, 100).map(|tried| tried.remedy.flags.as_str()), Some("cheap"));
        assert_eq!(best(&all[3..], 100), None);
    }
}
