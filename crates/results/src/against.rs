//! The difference between two policies on one trace.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hksim_explore::described::Described;
use hksim_explore::explained_time::ExplainedTime;
use hksim_explore::sentences::{causes as sentences, percent_signed};
use hksim_policy::Policy;
use hksim_sim::Explained;
use hksim_sim::explain::CauseKey;
use hksim_text::units;
use serde::{Deserialize, Serialize};

use crate::explain::{By, Names};
use crate::explained_time::TimeDifference;

/// Number of differences in words.
const SENTENCES: usize = 3;

/// The other policy or design, which `P` describes, and what differs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Against<P = Policy> {
    /// The other policy as it was given.
    pub name: String,
    /// The other policy.
    pub policy: P,
    /// Its installs.
    pub installs_total: u64,
    /// Its peak resident bytes.
    pub rss_bytes_peak: u64,
    /// Its installs by every key.
    pub by: By,
    /// Every reason and class in which the two differ, the largest difference first.
    pub differences: Vec<Difference>,
    /// Its times, and the terms in which they differ; absent without a profile.
    #[serde(flatten)]
    pub time: Option<TimeDifference>,
    /// The totals and the largest differences in words.
    pub sentences: Vec<String>,
}

/// An explained design, and its times if a profile was given.
pub type Timed<'a, P> = (&'a Explained<P>, Option<&'a ExplainedTime<P>>);

/// Installs of both policies for one reason and class.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// The reason.
    pub reason: Cow<'static, str>,
    /// The class.
    pub class: String,
    /// Whether these installs are made before the first event.
    pub at_start: bool,
    /// Installs of the explained policy.
    pub installs: u64,
    /// Installs of the other policy.
    pub installs_against: u64,
}

impl<P: Described> Against<P> {
    /// The difference between two explained simulations.
    pub fn new(name: &str, own: Timed<'_, P>, other: Timed<'_, P>, names: &Names<'_>) -> Against<P> {
        let ((explained, time), (other, other_time)) = (own, other);
        let (own, others) = (&explained.breakdown.causes, &other.breakdown.causes);
        let mut keys: Vec<CauseKey> = own.keys().chain(others.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        let count = |counts: &BTreeMap<CauseKey, u64>, key: &CauseKey| counts.get(key).copied().unwrap_or(0);
        let difference = |key: &CauseKey| Difference {
            reason: Cow::Borrowed(key.reason.word()),
            class: sentences::page_use(key.page_use),
            at_start: key.at_start,
            installs: count(own, key),
            installs_against: count(others, key),
        };
        let mut differences: Vec<Difference> =
            keys.iter().map(difference).filter(|difference| difference.amount() > 0).collect();
        differences.sort_by_key(|difference| std::cmp::Reverse(difference.amount()));
        let times = time.zip(other_time).map(|(own, other)| TimeDifference::new(own, other));
        let own_time = time.and_then(|time| time.priced.time.as_ref());
        let of_times = times.iter().flat_map(|times| times.sentences(name, own_time, SENTENCES));
        let sentences = of_times
            .chain(std::iter::once(totals(name, explained, other)))
            .chain(differences.iter().take(SENTENCES).map(Difference::sentence))
            .collect();
        Against {
            name: name.into(),
            policy: other.report.policy.clone(),
            installs_total: other.report.installs.total,
            rss_bytes_peak: other.report.rss_bytes_peak,
            by: By::of(other, other_time, names),
            differences,
            time: times,
            sentences,
        }
    }
}

impl Difference {
    fn amount(&self) -> u64 {
        self.installs.abs_diff(self.installs_against)
    }

    fn sentence(&self) -> String {
        let Difference { reason, class, at_start, installs, installs_against } = self;
        let more = if installs > installs_against { "more" } else { "fewer" };
        let place = if *at_start { " at the start" } else { "" };
        format!(
            "{} {more} for {}{place}, class {class}: {} instead of {}.",
            units::count(self.amount()),
            reason.replace('_', " "),
            units::count(*installs),
            units::count(*installs_against)
        )
    }
}

fn totals<P>(name: &str, explained: &Explained<P>, other: &Explained<P>) -> String {
    let (own, others) = (explained.report.installs.total, other.report.installs.total);
    let (rss, rss_other) = (explained.report.rss_bytes_peak, other.report.rss_bytes_peak);
    let change = |now: u64, before: u64| percent_signed(now as f64 / before.max(1) as f64 - 1.0);
    let [rss_text, rss_other_text] = units::bytes_pair(rss, rss_other);
    format!(
        "{} installs instead of {} with `{name}` ({}); peak RSS {rss_text} instead of {rss_other_text} ({}).",
        units::count(own),
        units::count(others),
        change(own, others),
        change(rss, rss_other)
    )
}
