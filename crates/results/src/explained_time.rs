//! The times of an explained design, and how they differ from another's.

use hksim_cost_model::SystemTime;
use hksim_explore::explained_time::{ExplainedTerm, ExplainedTime};
use hksim_explore::sentences::percent_signed;
use hksim_text::units;
use hksim_time_model::{ORDER_ERROR_SHARE, Term, Time};
use serde::{Deserialize, Serialize};

/// The times of a design with their terms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimesExplained {
    /// The system time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_time: Option<SystemTime>,
    /// The time of calls and accesses, as `sim` predicts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_skipped: Option<String>,
    /// What it is the sum of. Without a time, the terms of the system time.
    pub time_terms: Vec<TermRow>,
}

/// A term of a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TermRow {
    /// The term.
    #[serde(flatten)]
    pub term: Term,
    /// Whether it is divided by the keys of installs.
    pub is_by_key: bool,
}

impl TimesExplained {
    /// The times of an explained design, the largest terms of each part first.
    pub fn of<P>(time: &ExplainedTime<P>) -> TimesExplained {
        let row = |one: &ExplainedTerm| TermRow { term: one.term.clone(), is_by_key: one.is_by_key };
        let mut time_terms: Vec<TermRow> = time.terms.iter().map(row).collect();
        time_terms.sort_by(|one, other| {
            one.term.part.cmp(&other.term.part).then(other.term.ns_per_call.total_cmp(&one.term.ns_per_call))
        });
        TimesExplained {
            system_time: time.priced.system_time.clone(),
            time: time.priced.time.clone(),
            time_skipped: time.priced.time_skipped.clone(),
            time_terms,
        }
    }
}

/// A term of two designs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TermDifference {
    /// The term of the explained design.
    #[serde(flatten)]
    pub term: Term,
    /// How many of it the other design has.
    pub count_against: u64,
    /// Their nanoseconds per call.
    pub ns_per_call_against: f64,
}

impl TermDifference {
    fn ns(&self) -> f64 {
        self.term.ns_per_call - self.ns_per_call_against
    }

    fn sentence(&self) -> String {
        let more = if self.ns() > 0.0 { "more" } else { "less" };
        let (count, before) = (self.term.count, self.count_against);
        let counts = match before {
            _ if count == before => format!("as often ({}), each takes {more}", units::count(count)),
            0 => format!("{} instead of none", units::count(count)),
            _ => {
                let change = percent_signed(count as f64 / before as f64 - 1.0);
                format!("{} instead of {} ({change})", units::count(count), units::count(before))
            }
        };
        format!("{:.2} ns {more} for {}, {}: {counts}.", self.ns().abs(), self.term.part.word(), self.term.name)
    }
}

/// The times of two designs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimeDifference {
    /// The other design's times.
    #[serde(flatten)]
    pub times: TimesExplained,
    /// Every term in which the two differ, the largest difference first.
    pub time_differences: Vec<TermDifference>,
}

impl TimeDifference {
    /// The difference between the times of two designs.
    pub fn new<P>(own: &ExplainedTime<P>, other: &ExplainedTime<P>) -> TimeDifference {
        let is_same = |one: &Term, other: &Term| (one.part, &one.name) == (other.part, &other.name);
        let all = |time: &ExplainedTime<P>| time.terms.iter().map(|term| term.term.clone()).collect::<Vec<Term>>();
        let (mine, others) = (all(own), all(other));
        let only_others = others.iter().filter(|term| !mine.iter().any(|one| is_same(one, term)));
        let absent = only_others.map(|term| Term { count: 0, ns_per_call: 0.0, ..term.clone() });
        let difference = |term: Term| {
            let other = others.iter().find(|other| is_same(&term, other));
            let (count_against, ns_per_call_against) = other.map_or((0, 0.0), |other| (other.count, other.ns_per_call));
            TermDifference { term, count_against, ns_per_call_against }
        };
        let absent: Vec<Term> = absent.collect();
        let mut time_differences: Vec<TermDifference> = mine.into_iter().chain(absent).map(difference).collect();
        time_differences.retain(|difference| difference.ns() != 0.0);
        time_differences.sort_by(|one, other| other.ns().abs().total_cmp(&one.ns().abs()));
        TimeDifference { times: TimesExplained::of(other), time_differences }
    }

    /// The times and the largest differences in words; nothing if a time is not known.
    pub fn sentences(&self, name: &str, own: Option<&Time>, most: usize) -> Vec<String> {
        let Some((own, other)) = own.zip(self.times.time.as_ref()) else { return Vec::new() };
        let (ns, before) = (own.ns_per_call.median, other.ns_per_call.median);
        let change = ns / before - 1.0;
        let parts = own.parts_ns_per_call.named().into_iter().zip(other.parts_ns_per_call.named());
        let parts: Vec<String> = parts.map(|((part, ns), (_, before))| format!("{part} {:+.2}", ns - before)).collect();
        let tie = if change.abs() < ORDER_ERROR_SHARE { "; a tie: less than the model's own error" } else { "" };
        let head = format!(
            "{ns:.1} ns per call instead of {before:.1} with `{name}` ({}): {} ns{tie}.",
            percent_signed(change),
            parts.join(", ")
        );
        std::iter::once(head).chain(self.time_differences.iter().take(most).map(TermDifference::sentence)).collect()
    }
}
