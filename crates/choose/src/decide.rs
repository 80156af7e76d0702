//! The choice among the rows of the last stage, the front, and what each trace says if it is held out.

use hksim_replay::compare::Outcome;
use hksim_replay::library;
use hksim_results::choice::{Choice, HeldOut, OnTrace, Row, Stage, Verdict};
use hksim_timing::Estimate;

use crate::bench::{Counted, Measurable};
use crate::relation::estimate;
use crate::search::Request;
use crate::sentences;
use crate::table::{Table, Times, Tried};

/// The best row of some, on some traces.
pub(crate) struct Picked {
    pub(crate) row: usize,
    /// Rows that differ from it by no more than the error.
    pub(crate) tied: Vec<usize>,
    /// The row that would be better, if starting and ending its process did not take longer than its calls save.
    pub(crate) outweighed: Option<usize>,
}

/// Chooses among `last`, the rows of the last stage.
pub(crate) fn choice(
    table: &Table,
    request: &Request<'_>,
    goal: Measurable,
    last: &[usize],
    stages: Vec<Stage>,
    names: &[String],
) -> Choice {
    let traces = table.traces();
    let picked = pick(table, request, goal, last, &traces);
    let verdict = match &picked {
        None => Verdict::NoneWithinLimits,
        Some(picked) if picked.row == 0 => Verdict::NothingToChange,
        Some(_) => Verdict::Change,
    };
    let same_again = table.same_again.iter().map(|ratios| estimate(ratios)).collect();
    let mut found = Choice {
        rows: rows(table, request, &traces),
        choice: picked.as_ref().map(|picked| picked.row),
        verdict,
        tied: picked.as_ref().map(|picked| picked.tied.clone()).unwrap_or_default(),
        same_again,
        core_shared_share: table.core_shared_share(),
        stages,
        held_out: hold_out(table, request, goal, last, names),
        text: Vec::new(),
        apply: picked
            .as_ref()
            .filter(|picked| picked.row > 0)
            .map_or(Vec::new(), |picked| applied(&table.tried[0].counted, &table.tried[picked.row].counted)),
    };
    found.text = sentences::answer(table, request, goal, picked.as_ref(), &found);
    found
}

/// How a program whose allocator is `present` gets another one. A program that is linked to a library keeps its malloc
/// unless another file is loaded before it; for the C library's that is the C library itself.
fn applied(present: &Counted, other: &Counted) -> Vec<String> {
    let c_library = match (&present.library, &other.library) {
        (Some(_), None) => library::c_library_file().map(|file| format!("LD_PRELOAD={}", file.display())),
        _ => None,
    };
    c_library.into_iter().chain(other.apply.iter().cloned()).collect()
}

/// The best row within the limits. Of rows that differ by no more than the error: the one with the fewest changes, then
/// with the least peak RSS. So the present allocator is picked unless another row is better than it. If the goal is time, a
/// row that loses more by the start and the end of the process than its calls save is not picked.
pub(crate) fn pick(
    table: &Table,
    request: &Request<'_>,
    goal: Measurable,
    from: &[usize],
    traces: &[usize],
) -> Option<Picked> {
    let within: Vec<usize> =
        from.iter().copied().filter(|&row| table.broken(request.limits, row, traces).is_empty()).collect();
    let (lost, within): (Vec<usize>, Vec<usize>) =
        within.into_iter().partition(|&row| table.is_outweighed(goal, row, traces));
    let (lost, within) = if within.is_empty() { (Vec::new(), lost) } else { (lost, within) };
    let ranked = table.ranked(goal, &within, traces);
    let best = *ranked.first()?;
    let mut equal: Vec<usize> =
        ranked.into_iter().filter(|&row| row == best || table.is_tied(goal, row, best, traces)).collect();
    let rss = |row: usize| table.ratio(Measurable::Rss, row, 0, traces).map_or(f64::INFINITY, |ratio| ratio.median);
    equal.sort_by(|&one, &other| table.changes(one).cmp(&table.changes(other)).then(rss(one).total_cmp(&rss(other))));
    let row = equal.remove(0);
    let is_better = |&lost: &usize| {
        let ratio = table.ratio(goal, lost, row, traces);
        ratio.is_some_and(|ratio| ratio.median < 1.0) && !table.is_tied(goal, lost, row, traces)
    };
    let outweighed = table.ranked(goal, &lost, traces).into_iter().find(is_better);
    Some(Picked { row, tied: equal, outweighed })
}

/// The rows of the result.
fn rows(table: &Table, request: &Request<'_>, traces: &[usize]) -> Vec<Row> {
    let front = front(table, request, traces);
    let row = |(number, tried): (usize, &Tried)| Row {
        allocator: tried.candidate.word.clone(),
        setting: tried.candidate.setting(),
        library: tried.counted.library.clone(),
        version: tried.counted.version.clone(),
        outcome: tried.ended.as_ref().map_or(Outcome::Measured, |(outcome, _)| *outcome),
        reason: tried.ended.as_ref().map(|(_, why)| why.clone()),
        changes: table.changes(number),
        stage: tried.stage,
        ratio_to_present: table.ratio(Measurable::Time, number, 0, traces),
        rss_ratio: table.ratio(Measurable::Rss, number, 0, traces).map(|ratio| ratio.median),
        rss_end_ratio: table.ratio(Measurable::RssEnd, number, 0, traces).map(|ratio| ratio.median),
        is_within_limits: tried.runs_on() && table.broken(request.limits, number, traces).is_empty(),
        is_on_front: front.contains(&number),
        traces: traces.iter().map(|&trace| on_trace(table, number, trace)).collect(),
    };
    table.tried.iter().enumerate().map(row).collect()
}

/// A row's figures on one trace.
pub(crate) fn on_trace(table: &Table, row: usize, trace: usize) -> OnTrace {
    let tried = &table.tried[row];
    let (times, counts) = (tried.times.get(trace), tried.counts(trace));
    OnTrace {
        cpu_ns_per_call: times.and_then(Times::cpu_ns_per_call),
        cpu_s: times.and_then(Times::cpu_s),
        ratio_to_present: table.ratio_on(Measurable::Time, row, 0, trace),
        start_end_s_change: times.and_then(Times::start_end_s_change),
        rounds: times.map_or(0, |times| times.ratios.len() as u32),
        rss_bytes_peak: table.bytes(Measurable::Rss, row, trace),
        rss_bytes_end: table.bytes(Measurable::RssEnd, row, trace),
        faults: counts.and_then(|counts| counts.faults),
    }
}

/// The rows within the limits to which no other one is better in a figure and as good in the others. Differences within
/// the error are none.
fn front(table: &Table, request: &Request<'_>, traces: &[usize]) -> Vec<usize> {
    let all: Vec<usize> = (0..table.tried.len()).filter(|&row| table.tried[row].runs_on()).collect();
    let is_within = |row: &usize| table.broken(request.limits, *row, traces).is_empty();
    let within: Vec<usize> = all.into_iter().filter(is_within).collect();
    let dominates = |one: usize, other: usize| {
        let order = |what: Measurable| -> Option<f64> {
            match table.is_tied(what, one, other, traces) {
                true => Some(1.0),
                false => table.ratio(what, one, other, traces).map(|ratio: Estimate| ratio.median),
            }
        };
        let orders = Measurable::ALL.map(order);
        let is_never_worse = orders.iter().all(|ratio| ratio.is_some_and(|ratio| ratio <= 1.0));
        let is_better = orders.iter().flatten().any(|&ratio| ratio < 1.0);
        // Of equal rows the one with the fewest changes stands for all; of these, the first.
        let is_simpler = (table.changes(one), one) < (table.changes(other), other);
        is_never_worse && (is_better || is_simpler)
    };
    let is_dominated = |row: usize| within.iter().any(|&other| other != row && dominates(other, row));
    within.iter().copied().filter(|&row| !is_dominated(row)).collect()
}

/// Leaves out each trace in turn. Only rows of the last stage have had enough rounds, and equally many: a row of an earlier
/// one ties with almost all, and is chosen because it changes least.
fn hold_out(table: &Table, request: &Request<'_>, goal: Measurable, last: &[usize], names: &[String]) -> Vec<HeldOut> {
    if names.len() < 2 {
        return Vec::new();
    }
    let held = names.iter().enumerate().map(|(trace, name)| {
        let others: Vec<usize> = table.traces().into_iter().filter(|&other| other != trace).collect();
        let chosen = pick(table, request, goal, last, &others).map(|picked| picked.row);
        let broken = chosen.map(|row| table.broken(request.limits, row, &[trace])).unwrap_or_default();
        HeldOut {
            trace: name.clone(),
            chosen,
            regret: chosen.zip(least(table, request, goal, last, trace)).and_then(|(chosen, best)| {
                let ratio = table.ratio_on(goal, chosen, best, trace)?;
                let is_tied = chosen == best || table.is_tied(goal, chosen, best, &[trace]);
                Some(if is_tied { 0.0 } else { (ratio.median - 1.0).max(0.0) })
            }),
            ratio_to_present: chosen.and_then(|row| table.ratio_on(goal, row, 0, trace)).map(|ratio| ratio.median),
            limits_broken: broken.into_iter().map(|limit| limit.text.clone()).collect(),
        }
    });
    held.collect()
}

/// The row with the least of the goal within the limits on one trace.
pub(crate) fn least(
    table: &Table,
    request: &Request<'_>,
    goal: Measurable,
    from: &[usize],
    trace: usize,
) -> Option<usize> {
    let is_within = |row: &usize| table.broken(request.limits, *row, &[trace]).is_empty();
    let within: Vec<usize> = from.iter().copied().filter(is_within).collect();
    table.ranked(goal, &within, &[trace]).first().copied()
}
