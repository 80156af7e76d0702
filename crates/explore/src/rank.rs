//! Ranks designs over several traces by one figure.
//!
//! A design's *ratio* on a trace is its amount divided by the least amount of any design on that trace. Over several
//! traces, designs are ranked by the weighted geometric mean of their ratios, so that each trace counts alike however
//! large it is. *Regret* is the ratio minus 1: what choosing the design costs compared with the best one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::figures::{Amount, Figure, Figures};

/// One trace, under one assumption about the program, with the figures of every design on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name in sentences.
    pub name: String,
    /// Index of its trace.
    pub trace: usize,
    /// The assumption about the program, if the same trace was simulated under several.
    pub assumption: Option<String>,
    /// Its weight, above 0.
    pub weight: f64,
    /// The figures of each design. All cases have the same designs.
    pub designs: Vec<Figures>,
}

impl Case {
    /// The name of its trace.
    pub fn trace_name(&self) -> &str {
        let assumption = self.assumption.iter().map(|assumption| format!(", {assumption}"));
        assumption.fold(self.name.as_str(), |name, suffix| name.strip_suffix(&suffix).unwrap_or(name))
    }
}

/// Why designs cannot be ranked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RankError {
    /// There are no times.
    #[error("{0}: {1}: no times: run `hksim calibrate` on the target machine, or give its profile with --profile")]
    NoTime(Figure, String),
    /// There are no TLB misses.
    #[error(
        "tlb-misses: {0}: misses are known only if the trace has every access (record --accesses full) and --tlb names a core"
    )]
    NoTlbMisses(String),
    /// There is nothing to rank.
    #[error("no design serves every request of every trace and survives its memory limit")]
    NoDesign,
}

/// A design in a ranking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Index of the design.
    pub design: usize,
    /// Geometric mean of its ratios: 1 for a design that is best on every trace.
    pub ratio: f64,
    /// The same for the lower ends of its ranges. Equal to `ratio` for counts.
    pub ratio_low: f64,
    /// The same for the upper ends of its ranges.
    pub ratio_high: f64,
    /// Its greatest regret on a trace.
    pub regret_worst: f64,
    /// Index of that case.
    pub regret_worst_case: usize,
    /// Geometric mean of its ratios in peak RSS, which decides between equal ratios.
    pub rss_ratio: f64,
}

/// A ranking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// Designs, best first. Equal designs keep the order of the table.
    pub standings: Vec<Standing>,
    /// Designs that are not ranked, because a request failed.
    pub failed: Vec<usize>,
    /// Designs that are not ranked, because the kernel kills the program at its memory limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub killed: Vec<usize>,
    /// Designs that are not ranked, because their figure is not known: the profile lacks a cost.
    pub unknown: Vec<usize>,
}

impl Ranking {
    /// The ranking of cases in which no design serves every request.
    pub fn of_none(cases: &[Case]) -> Ranking {
        let (killed, failed) = all_designs(cases).into_iter().partition(|&design| serves_requests(cases, design));
        Ranking { standings: Vec::new(), failed, killed, unknown: Vec::new() }
    }
}

impl RankError {
    /// A figure is not known in a case.
    pub(crate) fn unknown(figure: Figure, case: &str) -> RankError {
        match figure {
            Figure::TlbMisses => RankError::NoTlbMisses(case.to_string()),
            _ => RankError::NoTime(figure, case.to_string()),
        }
    }
}

/// The logarithms of a design's ratios in one case, at the low end, the middle and the high end of its range.
#[derive(Clone, Copy)]
struct LogRatio {
    low: f64,
    middle: f64,
    high: f64,
}

/// The logarithmic ratios of some designs of a case to the least of them, by design. All have the figure.
fn log_ratios(case: &Case, figure: Figure, among: &[usize]) -> BTreeMap<usize, LogRatio> {
    let log = |amount: f64| figure.at_least_one_unit(amount).ln();
    let amounts = among.iter().filter_map(|&design| Some((design, case.designs[design].amount(figure)?)));
    let amounts: Vec<(usize, Amount)> = amounts.collect();
    let least = amounts.iter().map(|(_, amount)| log(amount.middle)).fold(f64::INFINITY, f64::min);
    let ratio = |amount: Amount| LogRatio {
        low: log(amount.low) - least,
        middle: log(amount.middle) - least,
        high: log(amount.high) - least,
    };
    amounts.into_iter().map(|(design, amount)| (design, ratio(amount))).collect()
}

/// Whether no request of any case fails with a design.
fn serves_requests(cases: &[Case], design: usize) -> bool {
    cases.iter().all(|case| case.designs[design].requests_failed == 0)
}

/// Whether a design survives the memory limits of all cases.
pub(crate) fn survives(cases: &[Case], design: usize) -> bool {
    cases.iter().all(|case| case.designs[design].killed_at_limit_bytes.is_none())
}

/// Ranks the `candidates` among the designs of `cases` by `figure`.
///
/// # Errors
/// No candidate has the figure in every case, or no candidate served every request and survived.
pub fn rank(cases: &[Case], candidates: &[usize], figure: Figure) -> Result<Ranking, RankError> {
    let has_figure = |design: &usize| cases.iter().all(|case| case.designs[*design].amount(figure).is_some());
    let (served, failed): (Vec<usize>, Vec<usize>) =
        candidates.iter().partition(|design| serves_requests(cases, **design));
    let (serving, killed): (Vec<usize>, Vec<usize>) = served.iter().partition(|design| survives(cases, **design));
    if serving.is_empty() {
        return Err(RankError::NoDesign);
    }
    let (among, unknown): (Vec<usize>, Vec<usize>) = serving.iter().partition(|design| has_figure(design));
    if among.is_empty() {
        let lacks = |case: &&Case| serving.iter().any(|&design| case.designs[design].amount(figure).is_none());
        return Err(RankError::unknown(figure, cases.iter().find(lacks).map_or("", |case| &case.name)));
    }
    let by_case = |figure| -> Vec<BTreeMap<usize, LogRatio>> {
        cases.iter().map(|case| log_ratios(case, figure, &among)).collect()
    };
    let (goal, rss) = (by_case(figure), by_case(Figure::Rss));
    let mut standings: Vec<Standing> = among.iter().map(|&design| standing(design, cases, &goal, &rss)).collect();
    standings.sort_by(|one, other| {
        let by_goal = one.ratio.total_cmp(&other.ratio);
        by_goal.then(one.rss_ratio.total_cmp(&other.rss_ratio)).then(one.design.cmp(&other.design))
    });
    Ok(Ranking { standings, failed, killed, unknown })
}

/// All designs of some cases, as candidates.
pub fn all_designs(cases: &[Case]) -> Vec<usize> {
    (0..cases.iter().map(|case| case.designs.len()).min().unwrap_or(0)).collect()
}

fn standing(
    design: usize,
    cases: &[Case],
    goal: &[BTreeMap<usize, LogRatio>],
    rss: &[BTreeMap<usize, LogRatio>],
) -> Standing {
    let weights: f64 = cases.iter().map(|case| case.weight).sum();
    let mean = |ratios: &[BTreeMap<usize, LogRatio>], part: fn(&LogRatio) -> f64| {
        let sum: f64 = cases.iter().zip(ratios).map(|(case, ratios)| case.weight * part(&ratios[&design])).sum();
        rounded((sum / weights).exp())
    };
    let regrets = goal.iter().map(|ratios| rounded(ratios[&design].middle.exp()) - 1.0).enumerate();
    // The first of several equal ones.
    let worst = regrets.fold((0, 0.0), |worst, regret| if regret.1 > worst.1 { regret } else { worst });
    Standing {
        design,
        ratio: mean(goal, |ratio| ratio.middle),
        ratio_low: mean(goal, |ratio| ratio.low),
        ratio_high: mean(goal, |ratio| ratio.high),
        regret_worst: worst.1,
        regret_worst_case: worst.0,
        rss_ratio: mean(rss, |ratio| ratio.middle),
    }
}

/// Removes the rounding errors of logarithms, so that equal amounts have equal ratios.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1e9).round() / 1e9
}

/// Indices of the points on the Pareto front: no other point is at least as good in both coordinates and better in one.
pub fn front<T: PartialOrd + Copy>(points: &[(T, T)]) -> Vec<usize> {
    let beaten = |own: (T, T)| points.iter().any(|&point| point.0 <= own.0 && point.1 <= own.1 && point != own);
    (0..points.len()).filter(|&point| !beaten(points[point])).collect()
}

/// The same for each `group` of consecutive points by itself, without those that are `None`. Indices are those of all
/// points.
pub fn fronts<T: PartialOrd + Copy>(points: &[Option<(T, T)>], group: usize) -> Vec<usize> {
    let groups = points.chunks(group.max(1)).enumerate();
    let of_group = |(number, points): (usize, &[Option<(T, T)>])| {
        let (places, points): (Vec<usize>, Vec<(T, T)>) =
            points.iter().enumerate().filter_map(|(place, point)| Some((place, (*point)?))).unzip();
        front(&points).into_iter().map(|index| number * group + places[index]).collect::<Vec<usize>>()
    };
    groups.flat_map(of_group).collect()
}
