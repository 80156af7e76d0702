//! Advice as text.

use hksim_explore::advise::{Advice, FrontEntry};
use hksim_explore::figures::Figure;
use hksim_explore::flags::RunConfig;
use hksim_explore::knobs::joined;
use hksim_explore::laboratory::differences;
use hksim_explore::sentences::{self, percent_signed};
use hksim_policy::Policy;
use hksim_results::advise::Advised;
use hksim_text::table::Table;
use hksim_text::units::{count, of};

/// Designs of the front that are shown; JSON has all.
const FRONT_MAX: usize = 12;

/// The lines of the advice, with tables as wide as `width`; as wide as they are if that is `None`.
pub fn lines(advised: &Advised, width: Option<usize>) -> Vec<String> {
    let width = width.unwrap_or(usize::MAX);
    let advice = &advised.advice;
    let mut lines = head(advised);
    lines.push(String::new());
    if let Some(winner) = &advice.winner {
        lines.push(format!("advice: {}", sentences::name(&winner.design).replace('`', "")));
    }
    lines.extend(advice.text.iter().cloned());
    let goal = advised.question.goal.0;
    lines.extend(front(advice, goal, width));
    lines.extend(held_out(advice, goal, width));
    lines.extend(settings(advised, width));
    lines
}

fn head(advised: &Advised) -> Vec<String> {
    let (advice, search) = (&advised.advice, &advised.search);
    let tried = if advice.is_complete {
        match advice.designs {
            1 => "the only design of the space".to_string(),
            designs => format!("all {} of the space", of(designs as u64, "design")),
        }
    } else {
        let all = search.points.map_or("2^64 or more".into(), count);
        format!(
            "{} of {all} (coordinate descent from the baseline, seed {})",
            of(advice.designs as u64, "design"),
            search.seed
        )
    };
    let goal = advised.question.goal.0;
    let mut lines = vec![format!(
        "{}; goal: {} {}; simulated {tried}",
        of(advised.traces.len() as u64, "trace"),
        sentences::least(goal),
        goal.name()
    )];
    let baseline = RunConfig::of(advice.baseline.policy);
    let differences = differences(&baseline, &RunConfig::of(Policy::DEFAULT));
    if !differences.is_empty() {
        lines.push(format!("baseline: the default with {differences}"));
    }
    lines
}

/// The Pareto front.
fn front(advice: &Advice, goal: Figure, width: usize) -> Vec<String> {
    if advice.front.len() < 2 {
        return Vec::new();
    }
    let price = advice.price;
    let mut lines = vec![String::new(), format!("front of {} and {}", goal.name(), price.name())];
    let is_one = advice.baseline.figures.len() == 1;
    let unit = if is_one { "" } else { " / best" };
    let mut table =
        Table::new(["design".to_string(), format!("{}{unit}", goal.name()), format!("{}{unit}", price.name())], &[0]);
    let cell = |entry: &FrontEntry, figure: Figure, ratio: f64| match entry.trial.figures.as_slice() {
        [figures] => figures.amount(figure).map_or(String::new(), |amount| figure.text(amount)),
        _ => format!("{ratio:.3}"),
    };
    for entry in advice.front.iter().take(FRONT_MAX) {
        table.push([
            sentences::name(&entry.trial.design).replace('`', ""),
            cell(entry, goal, entry.goal_ratio),
            cell(entry, price, entry.price_ratio),
        ]);
    }
    lines.extend(table.fitted(width));
    if let Some(more) = advice.front.len().checked_sub(FRONT_MAX).filter(|&more| more > 0) {
        lines.push(format!("and {more} more (--format json)"));
    }
    lines
}

/// The traces held out.
fn held_out(advice: &Advice, goal: Figure, width: usize) -> Vec<String> {
    let Some(summary) = sentences::held_out(&advice.held_out, goal) else { return Vec::new() };
    let has_limits = !advice.limits.is_empty();
    let to_baseline = format!("to {}", advice.baseline.design.baseline.words());
    let head = ["trace held out", "chosen on the others", "regret", &to_baseline];
    let head = head.into_iter().chain(has_limits.then_some("limits broken"));
    let mut table = Table::new(head, &[0, 1, 4]);
    let change = |ratio: Option<f64>| ratio.map_or("-".into(), percent_signed);
    for held in &advice.held_out {
        let chosen = held
            .chosen
            .as_ref()
            .map_or("none within the limits".into(), |design| sentences::name(design).replace('`', ""));
        let cells =
            [held.trace.clone(), chosen, change(held.regret), change(held.ratio_to_default.map(|ratio| ratio - 1.0))];
        table.push(cells.into_iter().chain(has_limits.then(|| held.limits_broken.join(", "))));
    }
    let mut lines = vec![String::new()];
    lines.extend(table.fitted(width));
    lines.push(summary);
    lines
}

/// The closest settings of other allocators.
fn settings(advised: &Advised, width: usize) -> Vec<String> {
    if advised.settings.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(["flag", "allocator", "versions", "closest setting today"], &[0, 1, 2, 3]);
    for setting in &advised.settings {
        let installed = setting.installed.as_ref().map(|version| format!(" ({version} here)"));
        table.push([
            format!("--{} {}", setting.flag, setting.value),
            setting.allocator.to_string(),
            format!("{}{}", setting.versions, installed.unwrap_or_default()),
            setting.setting.clone(),
        ]);
    }
    let mut lines = vec![String::new()];
    lines.extend(table.fitted(width));
    let joined = joined(&advised.settings);
    if !joined.is_empty() {
        lines.push(format!("Settings of one variable are set together: {}", joined.join(" ")));
    }
    lines.extend(advised.settings_refused.iter().cloned());
    lines.push(
        "These settings do not make another allocator equal to the design: `hksim compare` measures what they do."
            .into(),
    );
    lines
}
