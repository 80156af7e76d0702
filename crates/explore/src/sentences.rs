//! Answers as sentences. Every sentence about designs is built here, from typed reasons.

pub mod causes;

use crate::advise::{HeldOut, LimitEffect};
use crate::answer::{Answer, Change, Design, Lead, Over, Reason, Reference, TieBreak};
use crate::figures::{Amount, Figure};
use crate::question::{Question, Tie};
use crate::rank::{Case, all_designs, survives};
use hksim_text::units;

/// At most this many designs are named in one list.
const NAMED_MAX: usize = 3;

/// The sentences of an answer; none if there is only one design.
pub fn of(answer: &Answer, question: &Question, designs: &[Design], cases: &[Case]) -> Vec<String> {
    let Some(winner) = answer.winner else { return vec![no_design(designs.len(), cases)] };
    let writer = Writer { answer, winner, question, designs, cases };
    let mut prices = Vec::new();
    let mut sentences = Vec::new();
    if designs.len() < 2 {
        return sentences;
    }
    for reason in &answer.reasons {
        match reason {
            Reason::Price(_) | Reason::Bonus(_) => prices.push(reason),
            _ => {
                sentences.extend(writer.price(&std::mem::take(&mut prices)));
                sentences.push(capitalised(&writer.sentence(reason)));
            }
        }
    }
    sentences.extend(writer.price(&prices));
    sentences
}

/// Why there is no answer.
fn no_design(designs: usize, cases: &[Case]) -> String {
    let killed = all_designs(cases).into_iter().filter(|&design| !survives(cases, design)).count();
    if killed > 0 {
        let served = if killed < designs { ", and a request fails with the others" } else { "" };
        let designs = if designs == 1 { String::new() } else { format!("with {killed} of {designs} designs ") };
        return capitalised(&format!(
            "{designs}the program is killed at the memory limit{served}, so there is no answer."
        ));
    }
    let place = if cases.len() > 1 { "every request of every trace" } else { "every request" };
    let who = if designs == 1 { "The design does not serve" } else { "No design serves" };
    format!("{who} {place}, so there is no answer; the column `failed` counts the requests that failed.")
}

struct Writer<'a> {
    answer: &'a Answer,
    winner: usize,
    question: &'a Question,
    designs: &'a [Design],
    cases: &'a [Case],
}

impl Writer<'_> {
    fn sentence(&self, reason: &Reason) -> String {
        match reason {
            Reason::Alike { differs_in, by } => self.alike(differs_in, *by),
            Reason::NoDesign => no_design(self.designs.len(), self.cases),
            Reason::DefaultOverLimit(over) => self.over(over),
            Reason::BestWithin { candidates: 1, lead } => {
                format!("Only {} meets the limits: {}.", self.winner(), self.goal_compared(lead.change))
            }
            Reason::BestWithin { candidates, lead } => {
                let within = format!("of the {candidates} designs that meet the limits, {}", self.lead(*lead));
                format!("{within}: {}.", self.compared(lead.change))
            }
            Reason::Better(lead) => format!("{}: {}.", self.lead(*lead), self.compared(lead.change)),
            Reason::NoBetter(lead) => {
                format!("{}, but its lead is within {}: {}.", self.lead(*lead), self.tie(), self.compared(lead.change))
            }
            Reason::NoPrice => format!("The other figures are equal within {}.", self.question.tie),
            Reason::Tied { designs, by } => format!(
                "Within {} of the best: {}; {}.",
                self.tie(),
                self.names(designs),
                self.tie_break(*by)
            ),
            Reason::NotSeparable { designs } => format!(
                "Not separable: the range of {} overlaps with that of {}.",
                self.winner(),
                self.names(designs)
            ),
            Reason::BestOn { cases, of } if cases == of => {
                format!("It is the best, within {}, on all {of} {}.", self.tie(), self.noun())
            }
            Reason::BestOn { cases, of } => {
                format!("It is the best, within {}, on {cases} of {of} {}.", self.tie(), self.noun())
            }
            Reason::RegretWorst { regret, case } => {
                format!("At worst it costs {} more {} than the best design there ({case}).", percent(*regret), self.goal())
            }
            Reason::TouchesAssumed => {
                "The touches are assumed; `--touch none,first,all,read-then-all,all-at-death` shows whether the answer depends on that.".into()
            }
            Reason::TouchBracket { other, holds, fails } => self.touch_bracket(other, holds, fails),
            Reason::Failed { designs } => {
                format!("Not compared, because a request failed: {}.", self.names(designs))
            }
            Reason::Killed { designs } => {
                format!("Not compared, because the program is killed at the memory limit: {}.", self.names(designs))
            }
            Reason::Unknown { designs } if self.answer.goal == Figure::Time => {
                format!("Not compared, because their time is not known: {}.", self.names(designs))
            }
            Reason::Unknown { designs } => {
                format!("Not compared, because the profile lacks a cost for them: {}.", self.names(designs))
            }
            Reason::Price(_) | Reason::Bonus(_) => String::new(),
        }
    }

    /// Whether the winner has the least of the goal.
    fn lead(&self, lead: Lead) -> String {
        let nearly = if lead.is_least { "" } else { "nearly " };
        if lead.change.figure == Figure::Time {
            return format!("{} is {nearly}the fastest", self.winner());
        }
        format!("{} has {nearly}{} {}", self.winner(), least(lead.change.figure), self.goal())
    }

    /// By how much the baseline exceeds a limit.
    fn over(&self, over: &Over) -> String {
        let baseline = self.designs[self.winner].baseline.words();
        let [amount, most] = over.figure.pair(Amount::exact(over.amount), Amount::exact(over.most));
        let place = if self.cases.len() > 1 { format!(" on {}", over.case) } else { String::new() };
        format!(
            "{baseline} exceeds the limit \"{}\"{place}: {} of {amount}, and at most {most} is allowed ({}).",
            over.limit,
            over.figure.name(),
            percent_signed(over.amount / over.figure.at_least_one_unit(over.most) - 1.0)
        )
    }

    fn touch_bracket(&self, other: &Design, holds: &[String], fails: &[String]) -> String {
        let (winner, against) = (self.winner(), name(other));
        let tie = self.tie();
        match fails {
            [] => {
                let all = holds.join(", ");
                format!(
                    "The touches are assumed; {winner} is no worse than {against}, within {tie}, under each assumption ({all})."
                )
            }
            fails => {
                let rules: Vec<String> = fails.iter().map(|rule| format!("`--touch {rule}`")).collect();
                format!("The touches are assumed; with {} {against} is better.", list(&rules))
            }
        }
    }

    /// What counts as a tie in the goal.
    fn tie(&self) -> Tie {
        self.question.tie_in(self.answer.goal)
    }

    fn goal(&self) -> &'static str {
        self.answer.goal.name()
    }

    fn alike(&self, differs_in: &[Figure], by: TieBreak) -> String {
        let (place, amount) = match self.cases {
            [case] => ("on this trace", case.designs[self.winner].amount(self.answer.goal)),
            _ => ("on these traces", None),
        };
        let amount = amount.map_or(String::new(), |amount| format!(": {}", self.answer.goal.text(amount)));
        let figures: Vec<String> = differs_in.iter().map(|figure| figure.name().to_string()).collect();
        let others = match figures.as_slice() {
            [] => "Nor do their other figures".to_string(),
            figures => format!("They differ in {}", list(figures)),
        };
        format!(
            "These designs do not differ in {} {place}, within {}{amount}. {others}; {}.",
            self.goal(),
            self.tie(),
            self.tie_break(by)
        )
    }

    fn tie_break(&self, by: TieBreak) -> String {
        match by {
            TieBreak::Default => {
                let baseline = self.designs[self.winner].baseline.words();
                format!("{baseline} is one of them, so nothing has to be changed")
            }
            TieBreak::FewestChanges => format!("{} changes the fewest settings of them", self.winner()),
            TieBreak::LeastRss => {
                format!("of those that change the fewest settings, {} has the least peak RSS", self.winner())
            }
        }
    }

    /// What the cases are called.
    fn noun(&self) -> &'static str {
        if self.cases.iter().any(|case| case.assumption.is_some()) { "cases (trace and assumption)" } else { "traces" }
    }

    /// The price of the winner in the other figures.
    fn price(&self, reasons: &[&Reason]) -> Option<String> {
        let text = |wanted: fn(&Reason) -> Option<Change>| {
            let changes = reasons.iter().filter_map(|reason| wanted(reason));
            list(
                &changes.map(|change| format!("{} {}", change.figure.name(), self.amounts(change))).collect::<Vec<_>>(),
            )
        };
        let paid = text(|reason| if let Reason::Price(change) = reason { Some(*change) } else { None });
        let won = text(|reason| if let Reason::Bonus(change) = reason { Some(*change) } else { None });
        match (paid.is_empty(), won.is_empty()) {
            (true, true) => None,
            (true, false) => Some(format!("Also better: {won}.")),
            (false, true) => Some(format!("The price: {paid}.")),
            (false, false) => Some(format!("The price: {paid}; better: {won}.")),
        }
    }

    /// Amounts of the winner and the reference on the only trace, or the mean change over several traces.
    fn amounts(&self, change: Change) -> String {
        let percent = percent_signed(change.ratio - 1.0);
        let (Some(against), [case]) = (self.answer.against, self.cases) else { return percent };
        let amount = |design: usize| case.designs[design].amount(change.figure);
        match (amount(self.winner), amount(against)) {
            (Some(own), Some(other)) => {
                let [own, other] = change.figure.pair(own, other);
                let parts = if change.figure == Figure::Time { self.parts(case, against) } else { String::new() };
                format!("{own} instead of {other} ({percent}{parts})")
            }
            _ => percent,
        }
    }

    /// What the parts of a time contribute to the difference between winner and reference: those of at least 0.1 %.
    fn parts(&self, case: &Case, against: usize) -> String {
        let times = |design: usize| {
            let figures = &case.designs[design];
            Some((figures.ns_per_call?.median, figures.parts_ns_per_call?.named()))
        };
        let Some(((_, own), (total, other))) = times(self.winner).zip(times(against)) else { return String::new() };
        let mut shares: Vec<(f64, &str)> =
            own.iter().zip(other).map(|(own, other)| ((own.1 - other.1) / total, other.0)).collect();
        shares.retain(|(share, _)| share.abs() >= 0.001);
        shares.sort_by(|one, other| other.0.abs().total_cmp(&one.0.abs()));
        let texts = shares.iter().map(|(share, name)| format!("{name} {}", percent_signed(*share)));
        let texts = texts.collect::<Vec<_>>().join(", ");
        if texts.is_empty() { texts } else { format!(": {texts}") }
    }

    /// The figure, its amounts, and what they are compared with.
    fn goal_compared(&self, change: Change) -> String {
        format!("{} {}", change.figure.name(), self.compared(change))
    }

    /// The amounts, and what they are compared with.
    fn compared(&self, change: Change) -> String {
        let amounts = self.amounts(change);
        let Some(against) = self.answer.against.map(|design| self.name(design)) else { return amounts };
        let reference = match self.answer.reference {
            Some(Reference::Median) => format!("the median design, {against}"),
            Some(Reference::Worst) => format!("the worst design, {against}"),
            Some(Reference::Default) | None => against,
        };
        match self.cases {
            [_] => format!("{amounts} with {reference}"),
            cases => {
                format!("{amounts} (geometric mean over {} {}) compared with {reference}", cases.len(), self.noun())
            }
        }
    }

    fn winner(&self) -> String {
        self.name(self.winner)
    }

    fn name(&self, design: usize) -> String {
        name(&self.designs[design])
    }

    fn names(&self, designs: &[usize]) -> String {
        let named = designs.iter().take(NAMED_MAX).map(|&design| self.name(design));
        let mut names: Vec<String> = named.collect();
        if let Some(more) = designs.len().checked_sub(NAMED_MAX).filter(|&more| more > 0) {
            names.push(units::of(more as u64, "other"));
        }
        list(&names)
    }
}

/// The name of a design: its flags, marked if it is the baseline.
pub fn name(design: &Design) -> String {
    let baseline = design.baseline.words();
    match (design.name.as_str(), design.is_baseline()) {
        ("", true) => baseline.into(),
        ("", false) => "the only design".into(),
        (flags, true) => format!("`{flags}` ({baseline})"),
        (flags, false) => format!("`{flags}`"),
    }
}

/// A sentence with a capital letter at its start.
fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// `a, b and c`.
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// What a limit excludes and costs.
pub fn limit(effect: &LimitEffect, question: &Question, designs: usize) -> String {
    let goal = question.goal.0;
    let all = units::of(designs as u64, "design");
    let within =
        format!("Limit \"{}\": met by {} of {all}", effect.limit.text, units::count(effect.designs_within as u64));
    match effect.goal_ratio_without {
        None => format!("{within}."),
        Some(_) if effect.designs_within == designs => format!("{within}; it costs nothing."),
        // The winner without the limit, too, can be worse than the best by as much as the tie.
        Some(ratio) if ratio > 0.9995 => format!("{within}; it costs nothing beyond {}.", question.tie_in(goal)),
        Some(ratio) => {
            format!("{within}; without it, {} would change by {}.", goal.name(), percent_signed(ratio - 1.0))
        }
    }
}

/// How far a choice generalises.
pub fn held_out(held: &[HeldOut], goal: Figure) -> Option<String> {
    let mut regrets: Vec<(f64, &str)> =
        held.iter().filter_map(|held| Some((held.regret?, held.trace.as_str()))).collect();
    regrets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (&(worst, trace), middle) = (regrets.last()?, regrets.len() / 2);
    let median = (regrets[middle].0 + regrets[(regrets.len() - 1) / 2].0) / 2.0;
    let broken = held.iter().filter(|held| !held.limits_broken.is_empty()).count();
    let limits = match broken {
        0 => String::new(),
        _ => format!(" A limit was broken on {broken} of {}.", units::of(held.len() as u64, "trace")),
    };
    let (median, worst) = (percent(median), percent_signed(worst));
    let head = "Used on a trace that it was not chosen on, the advice has a median regret of";
    Some(format!("{head} {median} in {}, at worst {worst} ({trace}).{limits}", goal.name()))
}

/// Why advice has no winner.
pub fn no_winner(designs: usize, cases: &[Case], has_limits: bool) -> String {
    let killed = all_designs(cases).into_iter().filter(|&design| !survives(cases, design)).count();
    match (has_limits, designs) {
        (true, _) if killed > 0 => format!(
            "None of {} meets all limits on all traces; with {killed} of them the program is killed at the memory limit.",
            units::of(designs as u64, "design")
        ),
        (false, _) => no_design(designs, cases),
        (true, 1) => "The only design does not meet all limits on all traces, or a request fails with it.".into(),
        (true, _) => format!(
            "None of {} meets all limits on all traces and serves every request.",
            units::of(designs as u64, "design")
        ),
    }
}

/// The superlative of a figure.
pub fn least(figure: Figure) -> &'static str {
    match figure {
        Figure::Time | Figure::Rss | Figure::RssEnd | Figure::SysTime => "the least",
        Figure::Installs | Figure::TlbMisses | Figure::Vmas => "the fewest",
    }
}

/// A share as a percentage with two significant digits.
pub fn percent(share: f64) -> String {
    let percent = share.abs() * 100.0;
    match percent {
        0.0 => "0 %".into(),
        ..0.01 => "under 0.01 %".into(),
        ..0.1 => format!("{percent:.2} %"),
        ..10.0 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// A change as a signed percentage; a large increase as a factor.
pub fn percent_signed(change: f64) -> String {
    match change {
        10.0.. => format!("x {:.0}", change + 1.0),
        -0.000_1..0.000_1 => "+0 %".into(),
        0.0.. => format!("+{}", percent(change)),
        _ if change > -1.0 && change < -0.995 => format!("-{:.2} %", change.abs() * 100.0),
        _ => format!("-{}", percent(change)),
    }
}
