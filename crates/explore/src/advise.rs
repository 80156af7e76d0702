//! Advice: the best design within limits, what the limits cost, and how far the choice generalises.
//!
//! The caller simulates ([`Laboratory`]); this module chooses what to simulate, and what to make of it. *Held out*: each
//! trace in turn is left out, a design is chosen (and, where the space is too large for a grid, searched for) on the
//! others, and its regret is taken on the trace left out. That regret estimates what following the advice costs on a
//! program that was not recorded.

use std::collections::{BTreeMap, BTreeSet};

use hksim_policy::Policy;
use serde::{Deserialize, Serialize};

use crate::answer::{self, Answer, Design, Over, Reason};
use crate::figures::{Amount, Figure, Figures};
use crate::question::{Limit, Question};
use crate::rank::{Case, RankError, front, rank, survives};
use crate::search::{Effort, Point, Space, Value, search};
use crate::sentences;

/// A design with its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its flags.
    #[serde(flatten)]
    pub design: Design,
    /// Its policy.
    pub policy: Policy,
    /// Its figures, one per case.
    pub figures: Vec<Figures>,
}

/// Figures of two designs in every case, under one assumption about touches.
pub type Compared = Vec<[Figures; 2]>;

/// What simulates designs.
pub trait Laboratory {
    /// Why a simulation fails.
    type Error: From<RankError>;

    /// The cases, with names and weights but without designs.
    fn cases(&self) -> Vec<Case>;

    /// Simulates the baseline: the design that others are compared with, which need not be in the space.
    ///
    /// # Errors
    /// The simulation fails.
    fn baseline_trial(&mut self) -> Result<Trial, Self::Error>;

    /// Simulates points; `None` for points that are no design, because their words exclude each other.
    ///
    /// # Errors
    /// A simulation fails.
    fn trials(&mut self, points: &[Point]) -> Result<Vec<Option<Trial>>, Self::Error>;

    /// Simulates two designs under every assumption about touches, by the assumption's word. Empty if the touches are
    /// known or were given.
    ///
    /// # Errors
    /// A simulation fails.
    fn assumptions(&mut self, winner: &Trial, against: &Trial) -> Result<Vec<(String, Compared)>, Self::Error>;
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The question.
    pub question: &'a Question,
    /// The limits, all of which must be met on every trace.
    pub limits: &'a [Limit],
    /// The designs to choose from.
    pub space: &'a Space,
    /// How many of them to try.
    pub effort: Effort,
}

/// What a limit excludes and costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitEffect {
    /// The limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// Number of designs that meet it on every trace.
    pub designs_within: usize,
    /// The goal of the design that would win without this limit, divided by the winner's: 1 if the limit costs nothing.
    /// Both are chosen alike, so each may be worse than the best by the tie. Absent if no design meets all limits.
    pub goal_ratio_without: Option<f64>,
}

/// A design on the Pareto front.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontEntry {
    /// The design.
    #[serde(flatten)]
    pub trial: Trial,
    /// Geometric mean of the ratios of its goal to the best.
    pub goal_ratio: f64,
    /// The same for the figure that it is weighed against.
    pub price_ratio: f64,
}

/// A trace that was left out of the choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// The trace.
    pub trace: String,
    /// The design chosen on the other traces; absent if none meets the limits there.
    pub chosen: Option<Design>,
    /// Its goal on this trace, divided by that of the best design that meets the limits here, minus 1.
    pub regret: Option<f64>,
    /// Its goal on this trace, divided by the baseline's.
    pub ratio_to_default: Option<f64>,
    /// Limits that it breaks on this trace.
    pub limits_broken: Vec<String>,
}

/// The advice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Number of designs of the space that were simulated.
    pub designs: usize,
    /// Whether every design of the space was simulated.
    pub is_complete: bool,
    /// The winner; absent if no design meets the limits.
    pub winner: Option<Trial>,
    /// The baseline.
    #[serde(rename = "default")]
    pub baseline: Trial,
    /// Designs within the limits on the Pareto front of the goal and `price`, by goal.
    pub front: Vec<FrontEntry>,
    /// The figure that the front weighs the goal against.
    pub price: Figure,
    /// The limits.
    pub limits: Vec<LimitEffect>,
    /// Reasons, and reservations.
    pub reasons: Vec<Reason>,
    /// The reasons as sentences.
    pub text: Vec<String>,
    /// Each trace, held out. Empty if there is only one.
    pub held_out: Vec<HeldOut>,
}

/// All designs simulated so far. The first is the baseline.
struct Table {
    trials: Vec<Trial>,
    /// The index of each point in `trials`; `None` for points that are no design.
    points: BTreeMap<Point, Option<usize>>,
}

impl Table {
    /// Simulates the points that are not known yet. Points with the baseline's policy count as the baseline.
    fn simulate<L: Laboratory>(&mut self, lab: &mut L, points: &[Point]) -> Result<(), L::Error> {
        let new: Vec<Point> = points.iter().filter(|point| !self.points.contains_key(*point)).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        for (point, trial) in new.iter().zip(lab.trials(&new)?) {
            let index = trial.map(|trial| match trial.design.is_baseline() {
                true => 0,
                false => {
                    self.trials.push(trial);
                    self.trials.len() - 1
                }
            });
            self.points.insert(point.clone(), index);
        }
        Ok(())
    }

    fn designs(&self) -> Vec<Design> {
        self.trials.iter().map(|trial| trial.design.clone()).collect()
    }

    /// The cases with the figures of all designs.
    fn fill(&self, cases: &[Case]) -> Vec<Case> {
        let filled = cases.iter().enumerate().map(|(index, case)| Case {
            designs: self.trials.iter().map(|trial| trial.figures[index]).collect(),
            ..case.clone()
        });
        filled.collect()
    }
}

/// By how much a design exceeds a limit in a case, as a logarithm: 0 if it meets the limit. `None` if its figure is not
/// known.
///
/// # Errors
/// The baseline's figure, which the limit refers to, is not known.
fn excess(limit: &Limit, own: &Figures, baseline: &Figures) -> Result<Option<f64>, RankError> {
    let baseline = baseline.amount(limit.figure).ok_or_else(|| RankError::unknown(limit.figure, "--limit"))?;
    // A range meets a limit if its median does.
    let most = limit.figure.at_least_one_unit(limit.amount_max(baseline));
    let over = |own: Amount| (limit.figure.at_least_one_unit(own.middle) / most).ln().max(0.0);
    Ok(own.amount(limit.figure).map(over))
}

/// Whether a design is known to meet the limits in all cases.
fn is_within(limits: &[Limit], cases: &[Case], design: usize) -> Result<bool, RankError> {
    for case in cases {
        for limit in limits {
            if excess(limit, &case.designs[design], &case.designs[0])? != Some(0.0) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The designs among `from` that meet the limits in all cases.
fn within(limits: &[Limit], cases: &[Case], from: &[usize]) -> Result<Vec<usize>, RankError> {
    let mut found = Vec::new();
    for &design in from {
        if is_within(limits, cases, design)? {
            found.push(design);
        }
    }
    Ok(found)
}

/// The value of a trial for a search over some cases: the goal, then peak RSS, within the limits. `None` if a figure is
/// not known, or a request fails.
fn value(
    request: &Request<'_>,
    cases: &[(usize, &Case)],
    trial: &Trial,
    baseline: &Trial,
) -> Result<Option<Value>, RankError> {
    let goal = request.question.goal.0;
    // A sum of logarithms orders designs as the geometric mean of their ratios does.
    let sum = |figure: Figure| -> Option<f64> {
        let logs = cases.iter().map(|&(index, case)| {
            let amount = trial.figures[index].amount(figure)?.middle;
            Some(case.weight * figure.at_least_one_unit(amount).ln())
        });
        logs.sum()
    };
    let is_served = cases.iter().all(|&(index, _)| trial.figures[index].requests_failed == 0);
    let (true, Some(goal), Some(rss)) = (is_served, sum(goal), sum(Figure::Rss)) else { return Ok(None) };
    let mut excess_sum = 0.0;
    for &(index, _) in cases {
        excess_sum += killed_excess(&trial.figures[index]);
        for limit in request.limits {
            let Some(excess) = excess(limit, &trial.figures[index], &baseline.figures[index])? else { return Ok(None) };
            excess_sum += excess;
        }
    }
    Ok(Some(Value { excess: excess_sum, aims: vec![goal, rss] }))
}

/// By how much a design that is killed at the memory limit is beyond it, for a search: at least 1, and more if it needs
/// more memory. 0 for a design that survives.
fn killed_excess(figures: &Figures) -> f64 {
    let limit_bytes = figures.killed_at_limit_bytes.map(|bytes| bytes.max(1) as f64);
    limit_bytes.map_or(0.0, |limit_bytes| 1.0 + (figures.rss_bytes_peak as f64 / limit_bytes).ln().max(0.0))
}

/// Searches the space on the cases that `is_in` selects. Returns the designs tried, and whether these are all.
fn explore<L: Laboratory>(
    lab: &mut L,
    table: &mut Table,
    request: &Request<'_>,
    is_in: &dyn Fn(&Case) -> bool,
) -> Result<(Vec<usize>, bool), L::Error> {
    let cases = lab.cases();
    let cases: Vec<(usize, &Case)> = cases.iter().enumerate().filter(|(_, case)| is_in(case)).collect();
    let mut evaluate = |points: &[Point]| -> Result<Vec<Option<Value>>, L::Error> {
        table.simulate(lab, points)?;
        let trial = |point| table.points.get(point).copied().flatten().map(|index| &table.trials[index]);
        let values = points.iter().map(|point| match trial(point) {
            Some(trial) => value(request, &cases, trial, &table.trials[0]),
            None => Ok(None),
        });
        Ok(values.collect::<Result<Vec<Option<Value>>, RankError>>()?)
    };
    let found = search(request.space, request.effort, &mut evaluate)?;
    let tried = found.tried.iter().filter_map(|point| table.points.get(point).copied().flatten());
    let mut designs: Vec<usize> = tried.collect();
    designs.sort_unstable();
    designs.dedup();
    Ok((designs, found.is_complete))
}

/// Advises.
///
/// # Errors
/// A simulation fails, or a figure of the goal or of a limit is not known.
pub fn advise<L: Laboratory>(lab: &mut L, request: &Request<'_>) -> Result<Advice, L::Error> {
    let mut table = Table { trials: vec![lab.baseline_trial()?], points: BTreeMap::new() };
    let (tried, is_complete) = explore(lab, &mut table, request, &|_| true)?;
    let held_out = hold_out(lab, &mut table, request)?;
    let cases = table.fill(&lab.cases());
    let designs = table.designs();
    let allowed = within(request.limits, &cases, &tried)?;
    let judged = match answer::answer(request.question, &designs, &cases, &allowed, &[]) {
        Ok(judged) => Some(judged),
        Err(RankError::NoDesign) => None,
        Err(why) => return Err(why.into()),
    };
    let price = price_figure(request);
    let mut advice = Advice {
        designs: tried.len(),
        is_complete,
        winner: judged.as_ref().and_then(|judged| judged.winner).map(|winner| table.trials[winner].clone()),
        baseline: table.trials[0].clone(),
        front: front_of(request, &table, &cases, &allowed, price)?,
        price,
        limits: limit_effects(request, &designs, &cases, &tried, judged.as_ref())?,
        reasons: Vec::new(),
        text: Vec::new(),
        held_out,
    };
    match judged {
        Some(mut judged) => {
            // The baseline counts only if it is what the winner is compared with.
            let over = if judged.against == Some(0) { over_limits(request.limits, &cases)? } else { Vec::new() };
            judged.reasons.extend(touch_bracket(lab, request, &table, &cases, &judged, &allowed)?);
            judged.reasons.splice(0..0, over.into_iter().map(Reason::DefaultOverLimit));
            let is_killed = !allowed.contains(&0) && !survives(&cases, 0);
            judged.reasons.extend(is_killed.then(|| Reason::Killed { designs: vec![0] }));
            advice.text = sentences::of(&judged, request.question, &designs, &cases);
            advice.reasons = judged.reasons;
        }
        None => advice.text.push(sentences::no_winner(advice.designs, &cases, !request.limits.is_empty())),
    }
    let effects = advice.limits.iter().map(|effect| sentences::limit(effect, request.question, advice.designs));
    advice.text.extend(effects);
    Ok(advice)
}

/// The limits that the baseline exceeds, each with the case of the greatest excess.
fn over_limits(limits: &[Limit], cases: &[Case]) -> Result<Vec<Over>, RankError> {
    let mut found = Vec::new();
    for limit in limits {
        let mut worst: Option<(f64, &Case)> = None;
        for case in cases {
            let over = excess(limit, &case.designs[0], &case.designs[0])?.unwrap_or(0.0);
            if over > worst.map_or(0.0, |(most, _)| most) {
                worst = Some((over, case));
            }
        }
        let baseline = worst.and_then(|(_, case)| Some((case, case.designs[0].amount(limit.figure)?)));
        found.extend(baseline.map(|(case, amount)| Over {
            limit: limit.text.clone(),
            figure: limit.figure,
            amount: amount.middle,
            most: limit.amount_max(amount),
            case: case.name.clone(),
        }));
    }
    Ok(found)
}

/// The figure that the front weighs the goal against: that of the first limit, or peak RSS, or for a goal of peak RSS
/// installs.
fn price_figure(request: &Request<'_>) -> Figure {
    let goal = request.question.goal.0;
    let limited = request.limits.iter().map(|limit| limit.figure).find(|&figure| figure != goal);
    limited.unwrap_or(if goal == Figure::Rss { Figure::Installs } else { Figure::Rss })
}

fn front_of(
    request: &Request<'_>,
    table: &Table,
    cases: &[Case],
    allowed: &[usize],
    price: Figure,
) -> Result<Vec<FrontEntry>, RankError> {
    let ratios = |figure| match rank(cases, allowed, figure) {
        Ok(ranking) => Ok(ranking.standings.iter().map(|standing| (standing.design, standing.ratio)).collect()),
        Err(RankError::NoDesign) => Ok(BTreeMap::new()),
        Err(why) => Err(why),
    };
    let (goals, prices): (BTreeMap<usize, f64>, BTreeMap<usize, f64>) =
        (ratios(request.question.goal.0)?, ratios(price)?);
    let points: Vec<(usize, (f64, f64))> =
        goals.iter().filter_map(|(&design, &goal)| Some((design, (goal, *prices.get(&design)?)))).collect();
    let coordinates: Vec<(f64, f64)> = points.iter().map(|&(_, point)| point).collect();
    let on_front = front(&coordinates).into_iter().map(|index| points[index]);
    let entry = |(design, (goal_ratio, price_ratio)): (usize, (f64, f64))| FrontEntry {
        trial: table.trials[design].clone(),
        goal_ratio,
        price_ratio,
    };
    let mut entries: Vec<FrontEntry> = on_front.map(entry).collect();
    entries.sort_by(|one, other| one.goal_ratio.total_cmp(&other.goal_ratio));
    // Of equal designs the first found stands for all.
    entries.dedup_by(|later, first| (later.goal_ratio, later.price_ratio) == (first.goal_ratio, first.price_ratio));
    Ok(entries)
}

fn limit_effects(
    request: &Request<'_>,
    designs: &[Design],
    cases: &[Case],
    tried: &[usize],
    judged: Option<&Answer>,
) -> Result<Vec<LimitEffect>, RankError> {
    let goal = request.question.goal.0;
    let mut effects = Vec::new();
    for (index, limit) in request.limits.iter().enumerate() {
        let mut others = request.limits.to_vec();
        others.remove(index);
        let freed = within(&others, cases, tried)?;
        let free = answer::winner(request.question, designs, cases, &freed).ok();
        let winner = judged.and_then(|judged| judged.winner);
        let ratio = winner.zip(free).and_then(|(winner, free)| answer::change(cases, goal, winner, free));
        effects.push(LimitEffect {
            limit: limit.clone(),
            designs_within: within(std::slice::from_ref(limit), cases, tried)?.len(),
            goal_ratio_without: ratio.map(|change| change.ratio),
        });
    }
    Ok(effects)
}

/// Leaves out each trace in turn.
fn hold_out<L: Laboratory>(lab: &mut L, table: &mut Table, request: &Request<'_>) -> Result<Vec<HeldOut>, L::Error> {
    let mut traces: Vec<usize> = lab.cases().iter().map(|case| case.trace).collect();
    traces.dedup();
    if traces.len() < 2 {
        return Ok(Vec::new());
    }
    let mut candidates = Vec::new();
    for &trace in &traces {
        candidates.push(explore(lab, table, request, &|case| case.trace != trace)?.0);
    }
    // Only now are all designs known that a trace's best one is taken from.
    let cases = table.fill(&lab.cases());
    let held = traces.iter().zip(&candidates).map(|(&trace, tried)| held_out(table, request, &cases, trace, tried));
    Ok(held.collect::<Result<Vec<HeldOut>, RankError>>()?)
}

fn held_out(
    table: &Table,
    request: &Request<'_>,
    cases: &[Case],
    trace: usize,
    tried: &[usize],
) -> Result<HeldOut, RankError> {
    let (inside, outside): (Vec<Case>, Vec<Case>) = cases.iter().cloned().partition(|case| case.trace != trace);
    let designs = table.designs();
    let allowed = within(request.limits, &inside, tried)?;
    let chosen = answer::winner(request.question, &designs, &inside, &allowed).ok();
    let goal = request.question.goal.0;
    let in_space: BTreeSet<usize> = table.points.values().copied().flatten().collect();
    let best_here = within(request.limits, &outside, &in_space.into_iter().collect::<Vec<usize>>())?;
    let best = rank(&outside, &best_here, goal).ok().map(|ranking| ranking.standings[0].design);
    let ratio = |from: usize, to: usize| answer::change(&outside, goal, from, to).map(|change| change.ratio);
    let mut limits_broken = Vec::new();
    for limit in request.limits {
        if let Some(chosen) = chosen
            && !is_within(std::slice::from_ref(limit), &outside, chosen)?
        {
            limits_broken.push(limit.text.clone());
        }
    }
    Ok(HeldOut {
        trace: outside.first().map(|case| case.trace_name().to_string()).unwrap_or_default(),
        regret: chosen.zip(best).and_then(|(chosen, best)| ratio(best, chosen)).map(|ratio| ratio - 1.0),
        ratio_to_default: chosen.and_then(|chosen| ratio(0, chosen)),
        chosen: chosen.map(|chosen| designs[chosen].clone()),
        limits_broken,
    })
}

/// Whether the winner stays better than the reference under other assumptions about touches. A reference that exceeds a
/// limit is no alternative, so the second best design within the limits takes its place.
fn touch_bracket<L: Laboratory>(
    lab: &mut L,
    request: &Request<'_>,
    table: &Table,
    cases: &[Case],
    judged: &Answer,
    allowed: &[usize],
) -> Result<Option<Reason>, L::Error> {
    let (Some(winner), goal) = (judged.winner, request.question.goal.0) else { return Ok(None) };
    let second = || {
        let ranking = rank(cases, allowed, goal).ok()?;
        ranking.standings.iter().map(|standing| standing.design).find(|&design| design != winner)
    };
    let reference = judged.against.filter(|against| allowed.contains(against));
    let Some(other) = reference.or_else(second) else { return Ok(None) };
    let compared = lab.assumptions(&table.trials[winner], &table.trials[other])?;
    let (mut holds, mut fails) = (Vec::new(), Vec::new());
    for (word, figures) in compared {
        let pairs = cases.iter().zip(figures);
        let pairs: Vec<Case> = pairs.map(|(case, pair)| Case { designs: pair.to_vec(), ..case.clone() }).collect();
        let ratio = answer::change(&pairs, goal, 1, 0).map_or(1.0, |change| change.ratio);
        if ratio <= 1.0 + request.question.tie_in(goal).0 { holds.push(word) } else { fails.push(word) }
    }
    let other = table.trials[other].design.clone();
    Ok((!holds.is_empty() || !fails.is_empty()).then_some(Reason::TouchBracket { other, holds, fails }))
}
