//! What is known of all candidates so far, and how they compare.

use hksim_explore::figures::Amount;
use hksim_explore::question::{Bound, Limit};
use hksim_replay::compare::Outcome;
use hksim_timing::{Estimate, Sample, Timed, Timings, median_with_interval};

use crate::bench::{Counted, Counts, Measurable};
use crate::candidate::Candidate;
use crate::relation::{change, estimate, exact, mean, median_or_range, quotient};

/// The times of a candidate on one trace, one for each round of all its stages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// Processor time relative to the present candidate in the same round.
    pub(crate) ratios: Vec<f64>,
    cpu_ns_per_call: Vec<f64>,
    /// Processor seconds of a replay.
    cpu_s: Vec<f64>,
    /// Processor seconds by which its process takes longer to start and to end than the present candidate's in the same
    /// round.
    start_end_s: Vec<f64>,
}

impl Times {
    fn add(&mut self, subject: &Timed<String>, present: &Timed<String>) {
        let beyond = |(own, present): (&Sample, &Sample)| {
            let [own, present] = [own.start_end_ns?, present.start_end_ns?];
            Some((own as f64 - present as f64) / 1e9)
        };
        self.start_end_s.extend(subject.samples.iter().zip(&present.samples).filter_map(beyond));
        self.ratios.extend(&subject.ratios);
        self.cpu_ns_per_call.extend(subject.samples.iter().map(Sample::cpu_ns_per_call));
        self.cpu_s.extend(subject.samples.iter().map(|sample| sample.cpu_ns as f64 / 1e9));
    }

    pub(crate) fn cpu_ns_per_call(&self) -> Option<Estimate> {
        median_with_interval(self.cpu_ns_per_call.iter().copied())
    }

    pub(crate) fn cpu_s(&self) -> Option<Estimate> {
        median_with_interval(self.cpu_s.iter().copied())
    }

    /// A change that is known from so few rounds that they have no range may be none, or twice as large.
    pub(crate) fn start_end_s_change(&self) -> Option<Estimate> {
        let change = median_or_range(&self.start_end_s)?;
        let twice = 2.0 * change.median;
        match change.low {
            Some(_) => Some(change),
            None => Some(Estimate { low: Some(twice.min(0.0)), high: Some(twice.max(0.0)), ..change }),
        }
    }
}

/// A candidate that was tried.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) candidate: Candidate,
    /// The number of its family.
    pub(crate) family: usize,
    /// The axis and the text of each setting that its family does not have.
    pub(crate) settings: Vec<(usize, String)>,
    pub(crate) counted: Counted,
    /// Its times on each trace.
    pub(crate) times: Vec<Times>,
    /// The stage in which it was timed last, from 1; 0 if it was not.
    pub(crate) stage: u32,
    /// Why it has no more figures.
    pub(crate) ended: Option<(Outcome, String)>,
}

impl Tried {
    pub(crate) fn new(candidate: Candidate, family: usize, settings: Vec<(usize, String)>, counted: Counted) -> Tried {
        let predicted = counted.predicted.as_ref().map(|why| (Outcome::Predicted, why.clone()));
        let ended = counted.counts.as_ref().err().cloned().or(predicted);
        Tried { candidate, family, settings, counted, times: Vec::new(), stage: 0, ended }
    }

    pub(crate) fn runs_on(&self) -> bool {
        self.ended.is_none()
    }

    pub(crate) fn counts(&self, trace: usize) -> Option<&Counts> {
        self.counted.counts.as_ref().ok()?.get(trace)
    }
}

/// All candidates that were tried. The first is the present one.
pub(crate) struct Table {
    pub(crate) tried: Vec<Tried>,
    /// The weight of each trace.
    pub(crate) weights: Vec<f64>,
    /// The ratios of the present candidate to itself on each trace, in the rounds of all stages.
    pub(crate) same_again: Vec<Vec<f64>>,
    /// Rounds of all stages and traces that tell how often other work shared the core, and the sum of their shares
    /// ([`Timings::core_shared_share`]).
    core_shared: (u32, f64),
    /// Stages so far.
    pub(crate) stages: u32,
    /// The share by which candidates may differ and still count as equal.
    pub(crate) tie: f64,
}

impl Table {
    /// A table of no candidates yet.
    pub(crate) fn new(weights: Vec<f64>, tie: f64) -> Table {
        let same_again = vec![Vec::new(); weights.len()];
        Table { tried: Vec::new(), same_again, core_shared: (0, 0.0), weights, stages: 0, tie }
    }

    /// Adds the times of a stage, of which the present candidate is the first. Rows of a stage have been in all stages since
    /// their first one.
    pub(crate) fn note(&mut self, timed: &[usize], found: &[Timings<String>]) {
        self.stages += 1;
        for (all, timings) in self.same_again.iter_mut().zip(found) {
            all.extend(&timings.same_again);
            if let Some(share) = timings.core_shared_share {
                self.core_shared.0 += timings.rounds;
                self.core_shared.1 += share * f64::from(timings.rounds);
            }
        }
        for (place, &row) in timed.iter().enumerate() {
            let tried = &mut self.tried[row];
            let failure = found.iter().find_map(|timings| timings.subjects[place].failure.clone());
            if let Some(why) = failure {
                tried.ended = Some((Outcome::Failed, why));
                continue;
            }
            tried.times.resize_with(found.len(), Times::default);
            for (times, timings) in tried.times.iter_mut().zip(found) {
                times.add(&timings.subjects[place], &timings.subjects[0]);
            }
            tried.stage = self.stages;
        }
    }

    /// How often other work shared the core in all rounds.
    pub(crate) fn core_shared_share(&self) -> Option<f64> {
        let (rounds, shares) = self.core_shared;
        (rounds > 0).then(|| shares / f64::from(rounds))
    }

    /// All traces.
    pub(crate) fn traces(&self) -> Vec<usize> {
        (0..self.weights.len()).collect()
    }

    /// A figure of one candidate relative to another on some traces; `None` if it is not known.
    pub(crate) fn ratio(&self, what: Measurable, one: usize, other: usize, traces: &[usize]) -> Option<Estimate> {
        let of_trace = |&trace: &usize| Some((self.weights[trace], self.ratio_on(what, one, other, trace)?));
        mean(&traces.iter().map(of_trace).collect::<Option<Vec<_>>>()?)
    }

    pub(crate) fn ratio_on(&self, what: Measurable, one: usize, other: usize, trace: usize) -> Option<Estimate> {
        let (first, second) = (&self.tried[one], &self.tried[other]);
        if what != Measurable::Time {
            let bytes = |row: usize| Some(self.bytes(what, row, trace)?.max(1) as f64);
            return Some(exact(bytes(one)? / bytes(other)?));
        }
        let ratios = |tried: &'_ Tried| Some(tried.times.get(trace)?.ratios.clone());
        let (first_ratios, second_ratios) = (ratios(first)?, ratios(second)?);
        // Rows of one stage have had the same rounds since the later one of them was there, so that the noise of a round
        // cancels.
        if first.stage == second.stage {
            let pairs = first_ratios.iter().rev().zip(second_ratios.iter().rev());
            return estimate(&pairs.map(|(one, other)| one / other).collect::<Vec<f64>>());
        }
        // The present candidate is 1 in each round of every stage.
        match (one, other) {
            (_, 0) => estimate(&first_ratios),
            (0, _) => Some(quotient(&exact(1.0), &estimate(&second_ratios)?)),
            _ => Some(quotient(&estimate(&first_ratios)?, &estimate(&second_ratios)?)),
        }
    }

    /// Processor seconds that a candidate takes longer than the present one on a trace: in the calls, and in the start and
    /// the end of the process.
    pub(crate) fn changes_s(&self, row: usize, trace: usize) -> Option<[Estimate; 2]> {
        let times = |row: usize| self.tried[row].times.get(trace);
        let ratio = self.ratio_on(Measurable::Time, row, 0, trace)?;
        Some([change(&times(0)?.cpu_s()?, &ratio), times(row)?.start_end_s_change()?])
    }

    /// Whether the goal is time and a candidate's calls save some, but on no trace as much as the start and the end of its
    /// process add.
    pub(crate) fn is_outweighed(&self, goal: Measurable, row: usize, traces: &[usize]) -> bool {
        let is_lost = |&trace: &usize| {
            self.changes_s(row, trace).is_some_and(|[calls, start_end]| {
                start_end.low.is_some_and(|low| low > 0.0) && calls.median + start_end.median >= 0.0
            })
        };
        goal == Measurable::Time && traces.iter().all(is_lost) && !self.is_tied(goal, row, 0, traces)
    }

    /// Resident bytes of a candidate.
    pub(crate) fn bytes(&self, what: Measurable, row: usize, trace: usize) -> Option<u64> {
        let counts = self.tried[row].counts(trace)?;
        match what {
            Measurable::Rss => counts.rss_bytes_peak,
            Measurable::RssEnd => counts.rss_bytes_end,
            Measurable::Time => None,
        }
    }

    /// The error of the method for a figure.
    pub(crate) fn own_error(&self, what: Measurable, traces: &[usize]) -> f64 {
        let of_trace = |&trace: &usize| Some((self.weights[trace], estimate(&self.same_again[trace])?));
        match what {
            Measurable::Time => traces.iter().map(of_trace).collect::<Option<Vec<_>>>(),
            Measurable::Rss | Measurable::RssEnd => None,
        }
        .and_then(|ratios| mean(&ratios)?.half_width())
        .unwrap_or(0.0)
    }

    /// Whether two candidates do not differ in a figure by more than the error; one that is not known does.
    pub(crate) fn is_tied(&self, what: Measurable, one: usize, other: usize, traces: &[usize]) -> bool {
        let Some(ratio) = self.ratio(what, one, other, traces) else { return false };
        let least = self.tie.max(self.own_error(what, traces));
        // Either candidate may be the larger one: 0.43 times as much and 2.3 times as much are one difference.
        let more = ratio.median.max(1.0 / ratio.median) - 1.0;
        more <= least || (what == Measurable::Time && ratio.contains(1.0) == Some(true))
    }

    /// The limits that a candidate breaks on some trace. A time breaks a limit if its whole interval does.
    pub(crate) fn broken<'l>(&self, limits: &'l [Limit], row: usize, traces: &[usize]) -> Vec<&'l Limit> {
        limits.iter().filter(|limit| traces.iter().any(|&trace| !self.meets(limit, row, trace))).collect()
    }

    fn meets(&self, limit: &Limit, row: usize, trace: usize) -> bool {
        let Ok(what) = Measurable::of(limit.figure) else { return false };
        let known = match (what, limit.bound) {
            (Measurable::Time, Bound::OfDefault(share)) => {
                self.ratio_on(what, row, 0, trace).and_then(|ratio| ratio.low).map(|low| low <= share)
            }
            (Measurable::Time, Bound::Amount(most)) => {
                let time = self.tried[row].times.get(trace).and_then(Times::cpu_ns_per_call);
                time.map(|time| time.low.unwrap_or(time.median) <= most)
            }
            _ => {
                let bytes = |row: usize| self.bytes(what, row, trace).map(|bytes| bytes as f64);
                bytes(row).zip(bytes(0)).map(|(own, present)| own <= limit.amount_max(Amount::exact(present)))
            }
        };
        known == Some(true)
    }

    /// Candidates that run on, with the figure known on these traces, the least first. Equal ones are ordered by their
    /// changes.
    pub(crate) fn ranked(&self, what: Measurable, from: &[usize], traces: &[usize]) -> Vec<usize> {
        let known = from.iter().filter(|&&row| self.tried[row].runs_on());
        let mut valued: Vec<(f64, usize)> =
            known.filter_map(|&row| Some((self.ratio(what, row, 0, traces)?.median, row))).collect();
        let changes = |row: usize| self.changes(row);
        valued.sort_by(|one, other| one.0.total_cmp(&other.0).then(changes(one.1).cmp(&changes(other.1))));
        valued.into_iter().map(|(_, row)| row).collect()
    }

    /// Changes from the present candidate.
    pub(crate) fn changes(&self, row: usize) -> u32 {
        self.tried[row].candidate.changes_from(&self.tried[0].candidate)
    }
}
