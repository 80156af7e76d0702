//! What replays promise for the program itself, and whether a trial of it keeps that.
//!
//! A replay makes the program's calls and touches, but does none of its other work. So a ratio of replays is not that of
//! the program, whose time is longer by the same other work on every allocator. What is promised is the *change*: seconds
//! and bytes that the recording's calls cost more or less than on the present allocator, and the seconds that a process
//! takes longer to start and to end. A trial of a server has only the time of its load, so the latter are not promised.

use hksim_linux_mm::ThpMode;
use hksim_results::choice::{Choice, OnTrace};
use hksim_results::trial::{self, Promise, TrialReport};
use hksim_timing::{Effort, Estimate};

use crate::bench::Bench;
use crate::candidate::Candidate;
use crate::error::ChooseError;
use crate::relation::{change, sum};
use crate::table::{Table, Tried};

/// The allocator of a program that has none of its own.
const C_LIBRARY: &str = "glibc";

/// By how much a measured peak of RSS may miss the promised one, as a share of the measured one.
const RSS_ERROR: f64 = 0.02;

/// How the replays of one allocator differ from those of the present one.
#[derive(Clone, Debug, PartialEq)]
pub struct Promised {
    allocator: String,
    setting: Option<String>,
    cpu_s_change: Option<Estimate>,
    start_end_s_change: Option<Estimate>,
    rss_bytes_change: Option<i64>,
}

impl Promised {
    /// What a choice promises for the program of one of its traces; `None` without a choice.
    pub fn of(choice: &Choice, trace: usize) -> Option<Promised> {
        let (present, row) = (choice.rows.first()?, choice.rows.get(choice.choice?)?);
        let name = (row.allocator.clone(), row.setting.clone());
        Some(Promised::between(name, present.traces.get(trace)?, row.traces.get(trace)?))
    }

    /// The same promise for a row of another name.
    #[must_use]
    pub fn on(self, allocator: &str) -> Promised {
        Promised { allocator: allocator.to_string(), ..self }
    }

    fn between((allocator, setting): (String, Option<String>), present: &OnTrace, own: &OnTrace) -> Promised {
        let bytes = |on: &OnTrace| on.rss_bytes_peak.and_then(|bytes| i64::try_from(bytes).ok());
        Promised {
            allocator,
            setting,
            cpu_s_change: present.cpu_s.zip(own.ratio_to_present).map(|(present, ratio)| change(&present, &ratio)),
            start_end_s_change: own.start_end_s_change,
            rss_bytes_change: bytes(own).zip(bytes(present)).map(|(own, present)| own - present),
        }
    }

    /// What replays of the first trace promise for rows of a trial. The program as it is has the C library's allocator.
    ///
    /// # Errors
    /// The present allocator cannot be measured.
    pub fn by_replays<'r, B: Bench>(
        bench: &mut B,
        rows: impl Iterator<Item = &'r trial::Row>,
        effort: Effort,
    ) -> Result<Vec<Promised>, ChooseError> {
        let present = Candidate { word: C_LIBRARY.to_string(), mode: None };
        let rows: Vec<&trial::Row> = rows.collect();
        let candidates: Vec<Candidate> = rows.iter().map(|row| candidate(row)).collect();
        let mut table = Table::new(vec![1.0; bench.traces().len()], 0.0);
        for candidate in std::iter::once(&present).chain(&candidates) {
            let counted = bench.count(candidate);
            table.tried.push(Tried::new(candidate.clone(), 0, Vec::new(), counted));
        }
        let timed: Vec<usize> = (0..table.tried.len()).filter(|&row| table.tried[row].runs_on()).collect();
        let lost = |tried: &Tried| {
            let (_, why) = tried.ended.clone()?;
            Some(ChooseError::Present { allocator: tried.candidate.word.clone(), why })
        };
        lost(&table.tried[0]).map_or(Ok(()), Err)?;
        let timings =
            bench.time(&timed.iter().map(|&row| table.tried[row].candidate.clone()).collect::<Vec<_>>(), effort);
        table.note(&timed, &timings);
        lost(&table.tried[0]).map_or(Ok(()), Err)?;
        let on = |row: usize| crate::decide::on_trace(&table, row, 0);
        let measured = timed.iter().copied().skip(1).filter(|&row| table.tried[row].runs_on());
        let promised = measured.map(|at| {
            let row = rows[at - 1];
            Promised::between((row.allocator.clone(), row.setting.clone()), &on(0), &on(at))
        });
        Ok(promised.collect())
    }
}

/// What replays a row of a trial.
fn candidate(row: &trial::Row) -> Candidate {
    let word = if row.allocator == trial::PRESENT { C_LIBRARY } else { &row.allocator };
    let mode = row.setting.as_deref().and_then(|setting| ThpMode::from_word(setting.strip_prefix("thp=")?));
    Candidate { word: word.to_string(), mode }
}

/// What was promised, beside what a trial has measured. Rows that were not measured are left out.
pub fn promises(promised: &[Promised], report: &TrialReport) -> Vec<Promise> {
    let rows = &report.trial.rows;
    let Some(present) = rows.first() else { return Vec::new() };
    let measured = |one: &Promised| {
        let is_row = |row: &&trial::Row| row.allocator == one.allocator && row.setting == one.setting;
        rows.iter().skip(1).find(is_row).filter(|row| row.cpu_s.is_some())
    };
    let of_trial = |one: &Promised| match report.is_server {
        true => Promised { start_end_s_change: None, ..one.clone() },
        false => one.clone(),
    };
    promised.iter().filter_map(|one| Some(promise(&of_trial(one), present, measured(one)?))).collect()
}

fn promise(promised: &Promised, present: &trial::Row, row: &trial::Row) -> Promise {
    let cpu_s_change = match (promised.cpu_s_change, promised.start_end_s_change) {
        (Some(calls), Some(start_end)) => Some(sum(&calls, &start_end)),
        (calls, _) => calls,
    };
    let ratio_promised = present.cpu_s.zip(cpu_s_change).map(|(present, change)| {
        // A program cannot take less than no time.
        let at = |change: f64| (1.0 + change / present.median).max(0.0);
        Estimate { median: at(change.median), low: change.low.map(at), high: change.high.map(at) }
    });
    let overlap = |one: Estimate, other: Estimate| {
        let ((low, high), (other_low, other_high)) = one.interval().zip(other.interval())?;
        Some(low <= other_high && other_low <= high)
    };
    let rss_promised = present.rss_bytes_peak.zip(promised.rss_bytes_change);
    let rss_bytes_promised = rss_promised.map(|(present, change)| present.median.saturating_add_signed(change));
    let rss_bytes_measured = row.rss_bytes_peak.map(|peak| (peak.min, peak.max));
    let is_near = |(promised, (low, high)): (u64, (u64, u64))| {
        promised as f64 >= low as f64 * (1.0 - RSS_ERROR) && promised as f64 <= high as f64 * (1.0 + RSS_ERROR)
    };
    Promise {
        allocator: row.allocator.clone(),
        setting: row.setting.clone(),
        cpu_s_change: promised.cpu_s_change,
        start_end_s_change: promised.start_end_s_change,
        ratio_promised,
        ratio_measured: row.ratio_to_first,
        is_ratio_kept: ratio_promised.zip(row.ratio_to_first).and_then(|(one, other)| overlap(one, other)),
        rss_bytes_promised,
        rss_bytes_measured,
        is_rss_kept: rss_bytes_promised.zip(rss_bytes_measured).map(is_near),
    }
}

#[cfg(test)]
mod tests {
    use hksim_replay::compare::Spread;
    use hksim_results::Stamp;
    use hksim_results::trial::Trial;
    use hksim_timing::Ended;

    use super::*;

    fn interval(median: f64, low: f64, high: f64) -> Option<Estimate> {
        Some(Estimate { median, low: Some(low), high: Some(high) })
    }

    fn row(name: &str, ratio: Option<Estimate>, rss: u64) -> trial::Row {
        trial::Row {
            cpu_s: interval(10.0, 9.9, 10.1),
            ratio_to_first: ratio,
            rss_bytes_peak: Spread::of([Some(rss)]),
            ..trial::Row::new(name, None)
        }
    }

    /// A trial of a program of 10 s, in which another allocator has this ratio and RSS.
    fn tried(ratio: Option<Estimate>, rss: u64) -> TrialReport {
        TrialReport {
            stamp: Stamp::here(),
            program: Vec::new(),
            directory: None,
            input: None,
            is_server: false,
            environment: Default::default(),
            trial: Trial {
                rows: vec![row(trial::PRESENT, None, 1000 << 20), row("a", ratio, rss)],
                rounds: 11,
                runs_per_round: 1,
                precision: None,
                ended: Ended::Rounds,
                seed: 1,
                same_again: None,
                core_shared_share: None,
            },
            promises: Vec::new(),
        }
    }

    /// Calls that take 2 s less, 1.8 to 2.2.
    fn promised(start_end_s_change: Option<Estimate>) -> Promised {
        let change = change(&interval(4.0, 4.0, 4.0).expect("one"), &interval(0.5, 0.45, 0.55).expect("one"));
        Promised {
            allocator: "a".into(),
            setting: None,
            cpu_s_change: Some(change),
            start_end_s_change,
            rss_bytes_change: Some(-(100 << 20)),
        }
    }

    fn only(promised: Promised, report: &TrialReport) -> Promise {
        promises(&[promised], report).pop().expect("a promise")
    }

    /// A program of 10 s whose calls take 2 s less: 0.8, whatever the ratio of the replays is.
    #[test]
    fn a_change_is_promised_and_not_a_ratio() {
        let kept = only(promised(None), &tried(interval(0.8, 0.79, 0.81), 905 << 20));
        assert!((kept.ratio_promised.expect("a ratio").median - 0.8).abs() < 1e-9, "{kept:?}");
        assert_eq!(
            (kept.is_ratio_kept, kept.is_rss_kept, kept.rss_bytes_promised),
            (Some(true), Some(true), Some(900 << 20))
        );
        let broken = only(promised(None), &tried(interval(0.5, 0.49, 0.51), 990 << 20));
        assert_eq!((broken.is_ratio_kept, broken.is_rss_kept), (Some(false), Some(false)));
    }

    /// Its process takes 3 s longer to start and to end: 11 s of 10, with both errors. During a server's load it does
    /// neither.
    #[test]
    fn start_and_end_are_promised_unless_only_a_load_is_timed() {
        let start_end = interval(3.0, 2.85, 3.15);
        let mut report = tried(interval(1.1, 1.09, 1.11), 900 << 20);
        let kept = only(promised(start_end), &report);
        let (low, high) = kept.ratio_promised.and_then(|ratio| ratio.interval()).expect("an interval");
        assert!((low - 1.075).abs() < 1e-9 && (high - 1.125).abs() < 1e-9, "0.2 and 0.15 make 0.25: {kept:?}");
        assert_eq!((kept.is_ratio_kept, kept.start_end_s_change), (Some(true), start_end));
        report.is_server = true;
        let load = only(promised(start_end), &report);
        assert!((load.ratio_promised.expect("a ratio").median - 0.8).abs() < 1e-9, "{load:?}");
        assert_eq!((load.is_ratio_kept, load.start_end_s_change), (Some(false), None));
    }

    #[test]
    fn without_an_interval_it_is_not_known_whether_a_promise_is_kept() {
        let median = Estimate { median: 0.8, low: None, high: None };
        let unknown = only(promised(None), &tried(Some(median), 900 << 20));
        assert_eq!((unknown.is_ratio_kept, unknown.is_rss_kept), (None, Some(true)));
    }
}
