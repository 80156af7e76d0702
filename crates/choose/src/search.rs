//! The search: one setting at a time, then the settings that helped together, then successive halving.
//!
//! Why not another search: measuring is noisy and dear, so what counts is where the rounds go. Successive halving gives
//! rows that are clearly worse few rounds, and the best ones many. Settings of an allocator interact little, so one at a
//! time finds those that matter; the combinations of the best find what they do together. A model of the response, as in
//! Bayesian optimisers, has nothing to learn from axes of two or three words.

use hksim_explore::question::{Limit, Question};
use hksim_linux_mm::ThpMode;
use hksim_results::choice::{Choice, Stage};
use hksim_timing::Effort;

use crate::bench::{Bench, Measurable};
use crate::candidate::{Candidate, Family};
use crate::decide;
use crate::error::ChooseError;
use crate::table::{Table, Tried};

/// Rounds of the first stage; each later one has twice as many as the one before.
const FIRST_ROUNDS: u32 = 3;
/// Rows of the last stage, besides the present one.
const LAST_ROWS: usize = 4;
/// The family of the present allocator, unless it is in one of the families to choose from.
const NO_FAMILY: usize = usize::MAX;
/// Settings that are combined at most.
const COMBINED_MAX: usize = 4;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The goal, what counts as a tie, and the weights of the traces.
    pub question: &'a Question,
    /// Limits that must be met on every trace, relative to the present allocator.
    pub limits: &'a [Limit],
    /// The allocator that the program has now, as `--allocators` names it.
    pub present: &'a str,
    /// What to choose from.
    pub families: &'a [Family],
    /// Huge-page modes to try each candidate with; none: the machine's.
    pub modes: &'a [ThpMode],
    /// How many candidates to try, at most.
    pub candidates_max: usize,
    /// When the rounds of the last stage end, on each trace. Earlier stages have no more rounds.
    pub effort: Effort,
}

impl Request<'_> {
    pub(crate) fn goal(&self) -> Result<Measurable, ChooseError> {
        self.limits.iter().try_for_each(|limit| Measurable::of(limit.figure).map(drop))?;
        Measurable::of(self.question.goal.0)
    }

    fn modes(&self) -> Vec<Option<ThpMode>> {
        match self.modes {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        }
    }
}

/// Chooses.
///
/// # Errors
/// The present allocator cannot be measured, or replays do not measure a figure of the question.
pub fn choose<B: Bench>(bench: &mut B, request: &Request<'_>) -> Result<Choice, ChooseError> {
    let goal = request.goal()?;
    let mut search = Search::new(bench, request, goal);
    search.screen()?;
    let mut timed = search.rows_that_run();
    let mut rows = timed.clone();
    let has_axes = request.families.iter().any(|family| !family.axes.is_empty());
    let mut rounds = FIRST_ROUNDS;
    if has_axes || rows.len() > LAST_ROWS {
        search.time(&timed, search.rounds(rounds))?;
        let combined = search.combine();
        rows = search.halved(&rows);
        rows.extend(combined);
    }
    while rows.len() > LAST_ROWS {
        rounds *= 2;
        timed = search.with_the_best_of_each_trace(&rows, &timed);
        search.time(&timed, search.rounds(rounds))?;
        rows = search.halved(&rows);
    }
    timed = search.with_the_best_of_each_trace(&rows, &timed);
    search.time(&timed, request.effort)?;
    let last: Vec<usize> = std::iter::once(0).chain(timed).collect();
    let names: Vec<String> = search.bench.traces().into_iter().map(|(name, _)| name).collect();
    Ok(decide::choice(&search.table, request, goal, &last, search.stages, &names))
}

/// A search in progress.
struct Search<'a, B> {
    bench: &'a mut B,
    request: &'a Request<'a>,
    goal: Measurable,
    table: Table,
    stages: Vec<Stage>,
}

impl<'a, B: Bench> Search<'a, B> {
    fn new(bench: &'a mut B, request: &'a Request<'a>, goal: Measurable) -> Search<'a, B> {
        let weights = bench.traces().into_iter().map(|(_, weight)| weight).collect();
        let table = Table::new(weights, request.question.tie.0);
        Search { bench, request, goal, table, stages: Vec::new() }
    }

    /// The present allocator, each family as it is, and each of its settings alone.
    fn screen(&mut self) -> Result<(), ChooseError> {
        let present = Candidate { word: self.request.present.to_string(), mode: None };
        self.count(present, NO_FAMILY, Vec::new());
        self.check_present()?;
        for mode in self.request.modes() {
            for (number, family) in self.request.families.iter().enumerate() {
                self.count(family.with(&[], mode), number, Vec::new());
            }
            for (number, family) in self.request.families.iter().enumerate() {
                for (axis, setting) in
                    family.axes.iter().enumerate().flat_map(|(at, axis)| axis.iter().map(move |one| (at, one)))
                {
                    self.count(family.with(&[setting], mode), number, vec![(axis, setting.clone())]);
                }
            }
        }
        Ok(())
    }

    /// Counts a candidate that was not tried yet. Returns its row.
    fn count(&mut self, candidate: Candidate, family: usize, settings: Vec<(usize, String)>) -> Option<usize> {
        if let Some(known) = self.table.tried.iter_mut().find(|tried| tried.candidate == candidate) {
            // The present allocator is also the plain one of its family.
            if known.family == NO_FAMILY {
                known.family = family;
            }
            return None;
        }
        if self.table.tried.len() > self.request.candidates_max {
            return None;
        }
        let counted = self.bench.count(&candidate);
        self.table.tried.push(Tried::new(candidate, family, settings, counted));
        let row = self.table.tried.len() - 1;
        self.table.tried[row].runs_on().then_some(row)
    }

    fn check_present(&self) -> Result<(), ChooseError> {
        let present = &self.table.tried[0];
        let lost = |(_, why): &(_, String)| ChooseError::Present {
            allocator: present.candidate.word.clone(),
            why: why.clone(),
        };
        present.ended.as_ref().map_or(Ok(()), |ended| Err(lost(ended)))
    }

    /// All rows that run on, without the present one.
    fn rows_that_run(&self) -> Vec<usize> {
        (1..self.table.tried.len()).filter(|&row| self.table.tried[row].runs_on()).collect()
    }

    /// So many rounds, or as many as were asked for.
    fn rounds(&self, rounds: u32) -> Effort {
        Effort { precision: 0.0, rounds_max: rounds.min(self.request.effort.rounds_max), ..self.request.effort }
    }

    /// Times rows beside the present one.
    fn time(&mut self, rows: &[usize], effort: Effort) -> Result<(), ChooseError> {
        let timed: Vec<usize> = std::iter::once(0).chain(rows.iter().copied()).collect();
        let candidates: Vec<Candidate> = timed.iter().map(|&row| self.table.tried[row].candidate.clone()).collect();
        let found = self.bench.time(&candidates, effort);
        self.table.note(&timed, &found);
        self.stages.push(Stage { rows: timed.len() as u32, rounds_max: effort.rounds_max });
        self.check_present()
    }

    /// The better half of rows: first those within the limits that may be chosen, by the goal.
    fn halved(&self, rows: &[usize]) -> Vec<usize> {
        let traces = self.table.traces();
        let is_within = |&row: &usize| {
            self.table.broken(self.request.limits, row, &traces).is_empty()
                && !self.table.is_outweighed(self.goal, row, &traces)
        };
        let (within, beyond): (Vec<usize>, Vec<usize>) =
            self.table.ranked(self.goal, rows, &traces).into_iter().partition(is_within);
        let keep = (rows.len() / 2).max(LAST_ROWS);
        within.into_iter().chain(beyond).take(keep).collect()
    }

    /// Rows, and of others the best one of each trace. A trace that is held out is compared with what is best on it, and
    /// few rounds do not tell which row that is.
    fn with_the_best_of_each_trace(&self, rows: &[usize], others: &[usize]) -> Vec<usize> {
        let traces = self.table.traces();
        let mut all = rows.to_vec();
        if traces.len() > 1 {
            let best = |&trace| decide::least(&self.table, self.request, self.goal, others, trace);
            all.extend(traces.iter().filter_map(best));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Counts the combinations of settings that helped.
    fn combine(&mut self) -> Vec<usize> {
        let mut found = Vec::new();
        for mode in self.request.modes() {
            for (number, family) in self.request.families.iter().enumerate() {
                for settings in self.combinations(number, mode) {
                    let words: Vec<&str> = settings.iter().map(|(_, setting)| setting.as_str()).collect();
                    found.extend(self.count(family.with(&words, mode), number, settings.clone()));
                }
            }
        }
        found
    }

    /// Of a family: the best setting with the second best, then with the third; and the best setting with each one that
    /// lowers a limited figure most.
    fn combinations(&self, family: usize, mode: Option<ThpMode>) -> Vec<Vec<(usize, String)>> {
        let best = self.helping(family, mode, self.goal);
        let mut all: Vec<Vec<(usize, String)>> =
            (2..=best.len().min(COMBINED_MAX)).map(|count| best[..count].to_vec()).collect();
        for limit in self.request.limits {
            let relief = Measurable::of(limit.figure).map(|what| self.helping(family, mode, what)).unwrap_or_default();
            if let (Some(first), Some(relief)) = (best.first(), relief.first())
                && first.0 != relief.0
            {
                all.push(vec![first.clone(), relief.clone()]);
            }
        }
        // In the order of the axes, so that a combination has one name.
        all.iter_mut().for_each(|settings| settings.sort());
        all
    }

    /// The settings of a family that lower a figure alone, the best of each axis, the best axis first.
    fn helping(&self, family: usize, mode: Option<ThpMode>, what: Measurable) -> Vec<(usize, String)> {
        let traces = self.table.traces();
        let of_family = |row: &usize| {
            let tried = &self.table.tried[*row];
            tried.runs_on() && tried.family == family && tried.candidate.mode == mode
        };
        let rows: Vec<usize> = (0..self.table.tried.len()).filter(of_family).collect();
        let Some(&plain) = rows.iter().find(|&&row| self.table.tried[row].settings.is_empty()) else {
            return Vec::new();
        };
        let mut found: Vec<(usize, String)> = Vec::new();
        for row in self.table.ranked(what, &rows, &traces) {
            let is_less = self.table.ratio(what, row, plain, &traces).is_some_and(|ratio| ratio.median < 1.0);
            if let [(axis, setting)] = &self.table.tried[row].settings[..]
                && is_less
                && !self.table.is_tied(what, row, plain, &traces)
                && !found.iter().any(|(known, _)| known == axis)
            {
                found.push((*axis, setting.clone()));
            }
        }
        found
    }
}
