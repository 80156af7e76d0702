//! One allocator during a comparison.

use std::path::Path;

use super::environment::Run;
use super::timeline::{Live, timeline};
use super::{Allocator, Figures, Found, Outcome, Plan, Row, Spread};
use crate::timed_replay::MODES;
use crate::{
    Mode, PhaseSamples, ReplayError, ReplaySpec, Replayed, Skipped, SystemRuns, Times, mode_samples, phase_samples,
    replay,
};

/// An allocator during the comparison: its runs so far, or the reason why it has no more runs.
pub(super) struct Contestant<'a> {
    allocator: &'a Allocator,
    /// Counted runs.
    pub(super) counts: Vec<Replayed>,
    modes: SystemRuns,
    /// Why the processor's mode is not sampled.
    modes_skipped: Option<String>,
    phases: PhaseSamples,
    /// Why what it does is not sampled.
    phases_skipped: Option<String>,
    times: Times,
    ops_per_s: Option<Spread<f64>>,
    ended: Option<(Outcome, String)>,
}

/// All counted runs, in order.
pub(super) fn counted<'a>(contestants: &'a [Contestant<'a>]) -> Vec<Run<'a>> {
    let rounds = contestants.iter().map(|contestant| contestant.counts.len()).max().unwrap_or(0);
    let of_round = |at: usize| {
        contestants.iter().filter_map(move |contestant| {
            let environment = &contestant.counts.get(at)?.environment;
            Some(Run { round: at + 1, allocator: &contestant.allocator.name, environment })
        })
    };
    (0..rounds).flat_map(of_round).collect()
}

impl<'a> Contestant<'a> {
    pub(super) fn new(allocator: &'a Allocator) -> Contestant<'a> {
        let ended = match &allocator.found {
            Found::Here(_) => None,
            Found::Missing(why) => Some((Outcome::Skipped, why.clone())),
        };
        Contestant {
            allocator,
            counts: Vec::new(),
            modes: SystemRuns::default(),
            modes_skipped: None,
            phases: PhaseSamples::default(),
            phases_skipped: None,
            times: Times::default(),
            ops_per_s: None,
            ended,
        }
    }

    /// Whether it has not failed, and is not missing.
    pub(super) fn runs_on(&self) -> bool {
        self.ended.is_none()
    }

    /// The replay on it, while it runs.
    pub(super) fn spec(&self, plan: &Plan<'_>) -> Option<ReplaySpec> {
        match (&self.allocator.found, &self.ended) {
            (Found::Here(on), None) => Some(plan.spec(on.clone())),
            _ => None,
        }
    }

    /// Counts its pages, and samples the processor's mode.
    pub(super) fn count(&mut self, plan: &Plan<'_>) -> Result<(), ReplayError> {
        let Some(spec) = self.spec(plan) else { return Ok(()) };
        if let Some(run) = self.unless_it_crashed(replay(&spec))? {
            self.counts.push(run);
            self.sample_modes(&spec);
            if plan.is_apart {
                self.sample_phases(&spec);
            }
        }
        Ok(())
    }

    fn sample_phases(&mut self, spec: &ReplaySpec) {
        match phase_samples(spec) {
            Ok(samples) => self.phases.add(samples),
            Err(why) => self.phases_skipped = Some(why.to_string()),
        }
    }

    fn sample_modes(&mut self, spec: &ReplaySpec) {
        if self.modes_skipped.is_some() {
            return;
        }
        match spec.mode {
            Mode::Threaded => self.modes_skipped = Some("sampled in ordered replays only".to_string()),
            Mode::Ordered => match mode_samples(spec, 1) {
                Ok(runs) => self.modes.0.extend(runs.0),
                Err(why) => self.modes_skipped = Some(why.to_string()),
            },
        }
    }

    /// Takes its times, with the speed of its runs.
    pub(super) fn note_times(
        &mut self,
        found: Result<(Times, Option<Spread<f64>>), ReplayError>,
    ) -> Result<(), ReplayError> {
        if let Some((times, ops_per_s)) = self.unless_it_crashed(found)? {
            (self.times, self.ops_per_s) = (times, ops_per_s);
            self.times.split(&self.modes);
            self.times.divide(&self.phases);
        }
        Ok(())
    }

    /// The result of a run. If the allocator crashed, its row says so, and the comparison goes on.
    fn unless_it_crashed<T>(&mut self, run: Result<T, ReplayError>) -> Result<Option<T>, ReplayError> {
        match run {
            Ok(found) => Ok(Some(found)),
            Err(why) if why.is_crash() => {
                self.ended = Some((Outcome::Failed, why.to_string()));
                Ok(None)
            }
            Err(why) => Err(why),
        }
    }

    pub(super) fn row(self, live: &[Live]) -> Row {
        let (outcome, reason) = match self.ended {
            Some((outcome, reason)) => (outcome, Some(reason)),
            None => (Outcome::Measured, None),
        };
        let runs = if outcome == Outcome::Measured { self.counts } else { Vec::new() };
        let figures = Figures { ops_per_s: self.ops_per_s, ..Figures::of(&runs) };
        let timeline = if runs.is_empty() { Vec::new() } else { timeline(&runs, live) };
        // A counted run is not timed; others are.
        let is_counted = |skipped: &Skipped| !skipped.figure.contains("ops_per_s");
        let skipped = runs.into_iter().next().map(|run| run.skipped).unwrap_or_default();
        let modes_skipped = self.modes_skipped.map(|why| Skipped::new(MODES, why));
        let phases_skipped = self.phases_skipped.map(|why| Skipped::new("apart", why));
        Row {
            allocator: self.allocator.name.clone(),
            library: self.allocator.library().map(Path::to_path_buf),
            version: self.allocator.identified().map(|library| library.version),
            policy: self.allocator.own.map(|own| own.policy),
            code: self.allocator.own.map(|own| own.code),
            outcome,
            reason,
            times: self.times,
            figures,
            timeline,
            skipped: skipped.into_iter().filter(is_counted).chain(modes_skipped).chain(phases_skipped).collect(),
        }
    }
}

impl Figures {
    fn of(runs: &[Replayed]) -> Figures {
        let counts = |figure: fn(&Replayed) -> Option<u64>| Spread::of(runs.iter().map(figure));
        Figures {
            faults: counts(|run| run.faults),
            traps: counts(|run| run.traps),
            rss_bytes_peak: counts(|run| run.rss_bytes_peak),
            rss_bytes_end: counts(|run| run.rss_bytes_end),
            page_table_bytes_peak: counts(|run| run.page_table_bytes_peak),
            ops_per_s: None,
            requests_failed: counts(|run| Some(run.requests_failed)),
        }
    }
}
