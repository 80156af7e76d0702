//! The causes of installs, and the policy changes that remove them.
//!
//! A cause is all installs with one reason. Prefaulting at the allocator's start is a cause of its own. Its remedies are the policy changes
//! that can affect this reason; which of them helps is not assumed: each is simulated.

use hksim_policy::Policy;
use hksim_policy::flags::Flag;
use hksim_sim::accounting::Reason;
use hksim_sim::explain::{Breakdown, CauseKey};
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
    /// The number of installs in a breakdown that belong to this cause.
    pub fn installs_in(&self, breakdown: &Breakdown) -> u64 {
        let is_part = |key: &CauseKey| key.reason == self.reason && is_at_start(key) == self.at_start;
        breakdown.causes.iter().filter(|(key, _)| is_part(key)).map(|(_, &installs)| installs).sum()
    }

    /// Whether installs with the same reason can belong to another cause: those made at the start.
    pub fn shares_its_reason(&self) -> bool {
        has_cause_at_start(self.reason)
    }

    /// Whether one use stands out: at least half of the installs are for pages with it.
    pub fn has_main_use(&self) -> bool {
        2 * self.main_installs >= self.installs
    }
}

/// Whether installs with this reason are a cause of their own if they are made at the start: other settings decide what
/// is made present then.
fn has_cause_at_start(reason: Reason) -> bool {
    matches!(reason, Reason::Prefault | Reason::Populated)
}

fn is_at_start(key: &CauseKey) -> bool {
    key.at_start && has_cause_at_start(key.reason)
}

/// The causes with the most installs, at most `count`, in descending order.
pub fn largest(breakdown: &Breakdown, count: usize) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for (key, &installs) in &breakdown.causes {
        let at_start = is_at_start(key);
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

/// A change of a policy or of a design's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy<P = Policy> {
    /// The flags that change: `--purge none`.
    pub flags: String,
    /// The same flags with the values that they replace: `--purge dontneed`.
    pub replaces: String,
    /// The changed policy.
    pub policy: P,
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
        let shown = |policy: &Policy| {
            let flags = change.iter().filter(differs).filter_map(|&(name, _)| Flag::find(name));
            flags.map(|flag| format!("--{} {}", flag.name, flag.show(policy))).collect::<Vec<String>>().join(" ")
        };
        let flags: Vec<String> =
            change.iter().filter(differs).map(|(name, value)| format!("--{name} {value}")).collect();
        (!flags.is_empty() && changed.prepare().is_ok()).then(|| Remedy {
            flags: flags.join(" "),
            replaces: shown(policy),
            policy: changed,
        })
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
pub struct Tried<P = Policy> {
    /// The change.
    pub remedy: Remedy<P>,
    /// Installs of the cause with it.
    pub installs_of_cause: u64,
    /// All installs with it.
    pub installs: u64,
    /// Peak resident bytes with it.
    pub rss_bytes_peak: u64,
}

/// Share of the best remedy's effect that a cheaper remedy must have to be preferred.
const NEARLY_ALL: f64 = 0.9;
/// Share of a cause that a remedy must remove to be named.
const NOTICEABLE: f64 = 0.05;

/// The remedy to name for a cause: of those that remove nearly as much of it as the best, the one with the least peak
/// RSS; of equal ones, the one with the fewest installs, then the first. `None` if none removes a noticeable part.
///
/// An install that only becomes one with another reason is not removed. So a remedy counts with what it takes from the
/// cause, but at most with what it takes from the total.
pub fn best<'a, P>(tried: &'a [Tried<P>], cause: &Cause, installs_before: u64) -> Option<&'a Tried<P>> {
    let removed = |tried: &Tried<P>| {
        let of_cause = cause.installs.saturating_sub(tried.installs_of_cause);
        of_cause.min(installs_before.saturating_sub(tried.installs)) as f64
    };
    let most = tried.iter().map(removed).fold(0.0, f64::max);
    let is_noticeable = most > 0.0 && most >= NOTICEABLE * cause.installs as f64;
    let suffices = |tried: &&Tried<P>| is_noticeable && removed(tried) >= NEARLY_ALL * most;
    tried.iter().filter(suffices).min_by_key(|tried| (tried.rss_bytes_peak, tried.installs))
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

    fn cause(installs: u64) -> Cause {
        let reason = Reason::Metadata;
        Cause { reason, at_start: false, installs, main_use: PageUse::Metadata, main_installs: installs }
    }

    fn tried(flags: &str, installs_of_cause: u64, installs: u64, rss_bytes_peak: u64) -> Tried {
        let remedy = Remedy { flags: flags.into(), replaces: String::new(), policy: Policy::default() };
        Tried { remedy, installs_of_cause, installs, rss_bytes_peak }
    }

    #[test]
    fn a_cheap_remedy_that_nearly_suffices_is_preferred() {
        let all = [
            tried("best", 0, 0, 900),
            tried("cheap", 9, 9, 100),
            tried("weak", 50, 50, 10),
            tried("worse", 200, 200, 1),
        ];
        let best = |tried: &[Tried]| best(tried, &cause(100), 100).map(|best| best.remedy.flags.clone());
        assert_eq!(best(&all), Some("cheap".to_string()));
        assert_eq!(best(&all[3..]), None);
    }

    #[test]
    fn a_remedy_is_judged_by_its_cause() {
        let best = |tried: &[Tried]| best(tried, &cause(100), 1_000).map(|best| best.remedy.flags.clone());
        // Removes nearly everything but this cause.
        let other = tried("other cause", 100, 110, 1);
        assert_eq!(best(std::slice::from_ref(&other)), None);
        assert_eq!(best(&[other, tried("this cause", 20, 920, 9)]), Some("this cause".to_string()));
        assert_eq!(best(&[tried("moves it to another reason", 0, 1_000, 1)]), None);
        assert_eq!(best(&[tried("hardly noticeable", 96, 996, 1)]), None);
        assert_eq!(
            best(&[tried("first", 20, 920, 9), tried("fewer in all", 20, 900, 9)]),
            Some("fewer in all".to_string())
        );
    }

    #[test]
    fn a_remedy_names_the_values_that_it_replaces() {
        let policy = Policy { huge: hksim_policy::vocabulary::Huge::Never, ..Policy::default() };
        let remedies = remedies(&policy, &cause(1));
        let named: Vec<(&str, &str)> =
            remedies.iter().map(|remedy| (remedy.flags.as_str(), remedy.replaces.as_str())).collect();
        assert!(named.contains(&("--huge thp", "--huge never")), "{named:?}");
        assert!(named.iter().all(|(flags, replaces)| flags != replaces), "{named:?}");
    }
}
