//! The answer to "which design?": the winner, what it is compared with, and typed reasons.

use hksim_policy::Policy;
use hksim_policy::flags::{FLAGS, Flag};
use serde::{Deserialize, Serialize};

use crate::figures::{Figure, Figures};
use crate::question::Question;
use crate::rank::{Case, RankError, Ranking, Standing, rank};
use crate::sentences;

/// The policy that designs are compared with, in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Baseline {
    /// The default policy.
    #[default]
    Default,
    /// Another policy, chosen by the user.
    Given,
}

impl Baseline {
    /// Whether a policy is the default one.
    fn of(policy: &Policy) -> Baseline {
        if *policy == Policy::DEFAULT { Baseline::Default } else { Baseline::Given }
    }

    /// The words of sentences.
    pub const fn words(self) -> &'static str {
        match self {
            Baseline::Default => "the default",
            Baseline::Given => "the baseline",
        }
    }
}

/// A design as sentences name it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// Its flags, as they can be given on a command line; empty for the only design.
    pub name: String,
    /// Number of settings that are not those of the baseline: of its policy, and of its kernel if rows differ in it.
    pub settings_changed: usize,
    /// What the baseline is.
    #[serde(skip)]
    pub baseline: Baseline,
}

impl Design {
    /// A design with this policy, compared with the default one.
    pub fn new(name: String, policy: &Policy) -> Design {
        Design::compared_with(name, policy, &Policy::DEFAULT)
    }

    /// A design of which this number of settings are not the defaults.
    pub fn described(name: String, settings_changed: usize) -> Design {
        Design { name, settings_changed, baseline: Baseline::Default }
    }

    /// A design with this policy, compared with a baseline.
    pub fn compared_with(name: String, policy: &Policy, baseline: &Policy) -> Design {
        let differs = |flag: &&Flag| flag.show(policy).to_string() != flag.show(baseline).to_string();
        let settings_changed = FLAGS.iter().filter(differs).count();
        Design { name, settings_changed, baseline: Baseline::of(baseline) }
    }

    /// Whether its policy is the baseline.
    pub fn is_baseline(&self) -> bool {
        self.settings_changed == 0
    }
}

/// What the winner is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// The default policy, or the baseline that the user gave.
    Default,
    /// The design in the middle of the ranking: the baseline is not in the table, or it is the winner.
    Median,
    /// The last design of the ranking: the one in the middle is the winner, or as good.
    Worst,
}

/// A figure of the winner and of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The figure.
    pub figure: Figure,
    /// Geometric mean over the traces of the winner's amount divided by the reference's.
    pub ratio: f64,
}

/// The goal of the winner and of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lead {
    /// The change in the goal.
    #[serde(flatten)]
    pub change: Change,
    /// Whether no design is better than the winner. Otherwise a better one is within the tie.
    pub is_least: bool,
}

/// By how much a design exceeds a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Over {
    /// The limit as it was given.
    pub limit: String,
    /// The limited figure.
    pub figure: Figure,
    /// The design's amount: bytes, seconds or a count.
    pub amount: f64,
    /// The greatest allowed amount.
    pub most: f64,
    /// The trace on which the excess is greatest.
    pub case: String,
}

/// What decides between designs within the tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TieBreak {
    /// The winner is the baseline, so nothing has to be changed.
    Default,
    /// The winner changes the fewest settings. It is the one that is least likely to be good by chance.
    FewestChanges,
    /// Of the designs that change the fewest settings, the winner has the least peak RSS.
    LeastRss,
}

/// A reason for an answer, or a reservation about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// All designs are equal within the tie, on every trace.
    Alike {
        /// Other figures in which they differ by more than the tie.
        differs_in: Vec<Figure>,
        /// Why the winner was chosen among them.
        by: TieBreak,
    },
    /// There is no winner: no design serves every request of every trace, and survives its memory limit.
    NoDesign,
    /// The baseline, with which the winner is compared, exceeds a limit.
    DefaultOverLimit(Over),
    /// The winner is the best of the designs that meet the limits. The reference does not meet them.
    BestWithin {
        /// Number of the designs that meet the limits and were compared.
        candidates: usize,
        /// The change in the goal.
        #[serde(flatten)]
        lead: Lead,
    },
    /// The winner is better than the reference.
    Better(Lead),
    /// The reference is as good as the winner, within the tie.
    NoBetter(Lead),
    /// A figure that the winner pays with.
    Price(Change),
    /// A figure in which the winner is better, too.
    Bonus(Change),
    /// The other figures are equal within the tie.
    NoPrice,
    /// Designs within the tie of the best, without the winner.
    Tied {
        /// The designs.
        designs: Vec<usize>,
        /// Why the winner was chosen among them.
        by: TieBreak,
    },
    /// The ranges of the winner and of these designs overlap.
    NotSeparable {
        /// The designs.
        designs: Vec<usize>,
    },
    /// On how many cases the winner is within the tie of the best.
    BestOn {
        /// Number of such cases.
        cases: usize,
        /// Number of all cases.
        of: usize,
    },
    /// The greatest regret of the winner on one trace.
    RegretWorst {
        /// The regret.
        regret: f64,
        /// The trace.
        case: String,
    },
    /// The touches of some traces are assumed, and only one assumption was simulated.
    TouchesAssumed,
    /// Whether the winner stays at least as good as another design, within the tie, under each assumption about touches.
    TouchBracket {
        /// The other design: the reference, or the second best if the reference exceeds a limit.
        other: Design,
        /// Assumptions under which it is.
        holds: Vec<String>,
        /// Assumptions under which the other design is better.
        fails: Vec<String>,
    },
    /// These designs did not serve every request, and were not compared.
    Failed {
        /// The designs.
        designs: Vec<usize>,
    },
    /// The kernel kills the program with these designs at the memory limit, so they were not compared.
    Killed {
        /// The designs.
        designs: Vec<usize>,
    },
    /// The figure of these designs is not known, so they were not compared.
    Unknown {
        /// The designs.
        designs: Vec<usize>,
    },
}

/// The answer for one table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The figure minimised.
    pub goal: Figure,
    /// Index of the winner; `None` if no design serves every request.
    pub winner: Option<usize>,
    /// The winner's figures, by trace. Empty without a winner.
    pub figures: Vec<Figures>,
    /// Index of the design that it is compared with; absent if there is only one design.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<usize>,
    /// What that design is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// The reasons.
    pub reasons: Vec<Reason>,
    /// The reasons as sentences.
    pub text: Vec<String>,
}

/// The winner among the `candidates`, as in [`answer`].
///
/// # Errors
/// As for [`answer`].
pub fn winner(
    question: &Question,
    designs: &[Design],
    cases: &[Case],
    candidates: &[usize],
) -> Result<usize, RankError> {
    let ranking = rank(cases, candidates, question.goal.0)?;
    Ok(Judged { question, designs, cases, ranking: &ranking }.winner())
}

/// A ranking, and what is needed to explain it.
struct Judged<'a> {
    question: &'a Question,
    designs: &'a [Design],
    cases: &'a [Case],
    ranking: &'a Ranking,
}

/// Answers a question about the `candidates` among the designs of `cases`. `notes` are reservations that figures do not
/// show.
///
/// # Errors
/// The goal's figure is not known, or no candidate serves every request.
pub fn answer(
    question: &Question,
    designs: &[Design],
    cases: &[Case],
    candidates: &[usize],
    notes: &[Reason],
) -> Result<Answer, RankError> {
    let ranking = rank(cases, candidates, question.goal.0)?;
    let judged = Judged { question, designs, cases, ranking: &ranking };
    let winner = judged.winner();
    let against = judged.reference(winner);
    let mut reasons = judged.reasons(winner, against);
    reasons.extend_from_slice(notes);
    let figures = cases.iter().map(|case| case.designs[winner]).collect();
    let mut answer = Answer {
        goal: question.goal.0,
        winner: Some(winner),
        figures,
        against: against.map(|(design, _)| design),
        reference: against.map(|(_, reference)| reference),
        reasons,
        text: Vec::new(),
    };
    answer.text = sentences::of(&answer, question, designs, cases);
    Ok(answer)
}

/// The answer for designs of which none serves every request.
pub fn no_answer(question: &Question, designs: &[Design], cases: &[Case]) -> Answer {
    let mut answer = Answer {
        goal: question.goal.0,
        winner: None,
        figures: Vec::new(),
        against: None,
        reference: None,
        reasons: vec![Reason::NoDesign],
        text: Vec::new(),
    };
    answer.text = sentences::of(&answer, question, designs, cases);
    answer
}

/// Geometric mean over the cases of the ratio of two designs in a figure; `None` if the figure is not known everywhere.
pub(crate) fn change(cases: &[Case], figure: Figure, from: usize, to: usize) -> Option<Change> {
    let weights: f64 = cases.iter().map(|case| case.weight).sum();
    let mut sum = 0.0;
    for case in cases {
        let amount = |design: usize| Some(figure.at_least_one_unit(case.designs[design].amount(figure)?.middle));
        sum += case.weight * (amount(to)? / amount(from)?).ln();
    }
    Some(Change { figure, ratio: (sum / weights).exp() })
}

impl Judged<'_> {
    fn goal(&self) -> Figure {
        self.question.goal.0
    }

    /// By how much designs may differ in the goal and still count as equal.
    fn tie(&self) -> f64 {
        self.question.tie_in(self.goal()).0
    }

    /// Designs within the tie of the best, best first.
    fn tied(&self) -> impl Iterator<Item = &Standing> {
        let best = self.ranking.standings[0].ratio;
        let limit = best * (1.0 + self.tie());
        self.ranking.standings.iter().take_while(move |standing| standing.ratio <= limit)
    }

    /// Among the designs within the tie: the one that changes the fewest settings, and of several such designs the one
    /// with the least peak RSS. What ties here may matter on another trace, so settings without a reason stay.
    fn winner(&self) -> usize {
        let changes = |standing: &Standing| self.designs[standing.design].settings_changed;
        let least = self
            .tied()
            .min_by(|one, other| changes(one).cmp(&changes(other)).then(one.rss_ratio.total_cmp(&other.rss_ratio)));
        least.map_or(0, |standing| standing.design)
    }

    fn reference(&self, winner: usize) -> Option<(usize, Reference)> {
        // The baseline is a reference even if a limit keeps it from being a candidate.
        let all = self.ranking.standings.iter().map(|standing| standing.design).chain(0..self.designs.len());
        let has_goal = |case: &Case, design: usize| {
            case.designs[design].is_served() && case.designs[design].amount(self.goal()).is_some()
        };
        let is_compared = |&design: &usize| self.cases.iter().all(|case| has_goal(case, design));
        let baseline = all.filter(is_compared).find(|&design| design != winner && self.designs[design].is_baseline());
        if let Some(baseline) = baseline.filter(|_| !self.designs[winner].is_baseline()) {
            return Some((baseline, Reference::Default));
        }
        let worst = self.ranking.standings.iter().rfind(|standing| standing.design != winner)?;
        let middle = &self.ranking.standings[self.ranking.standings.len() / 2];
        let is_tied = middle.ratio <= self.ranking.standings[0].ratio * (1.0 + self.tie());
        let is_median = middle.design != winner && middle.design != worst.design && !is_tied;
        Some(if is_median { (middle.design, Reference::Median) } else { (worst.design, Reference::Worst) })
    }

    fn reasons(&self, winner: usize, against: Option<(usize, Reference)>) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let Some((against, _)) = against else {
            reasons.extend(self.not_compared());
            return reasons;
        };
        let is_candidate = self.ranking.standings.iter().any(|standing| standing.design == against);
        if is_candidate && self.is_alike(self.goal()) {
            let differs = |figure: &Figure| *figure != self.goal() && !self.is_alike(*figure);
            let differs_in = Figure::MENTIONED.into_iter().filter(differs).collect();
            reasons.push(Reason::Alike { differs_in, by: self.tie_break(winner) });
        } else {
            reasons.extend(self.comparison(winner, against));
            let tied: Vec<usize> =
                self.tied().map(|standing| standing.design).filter(|&design| design != winner).collect();
            let overlapping = self.overlapping(winner, &tied);
            if !tied.is_empty() {
                reasons.push(Reason::Tied { designs: tied, by: self.tie_break(winner) });
            }
            if !overlapping.is_empty() {
                reasons.push(Reason::NotSeparable { designs: overlapping });
            }
            reasons.extend(self.spread(winner));
        }
        reasons.extend(self.not_compared());
        reasons
    }

    /// Whether all ranked designs are equal in a figure, within the tie, in every case. A figure that is not known is
    /// equal.
    fn is_alike(&self, figure: Figure) -> bool {
        self.cases.iter().all(|case| {
            let amounts = self.ranking.standings.iter().filter_map(|standing| {
                Some(figure.at_least_one_unit(case.designs[standing.design].amount(figure)?.middle))
            });
            let (least, most) = amounts
                .fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), amount| (least.min(amount), most.max(amount)));
            most <= least * (1.0 + self.question.tie_in(figure).0)
        })
    }

    fn tie_break(&self, winner: usize) -> TieBreak {
        let changes = self.designs[winner].settings_changed;
        let alike = self.tied().filter(|standing| self.designs[standing.design].settings_changed == changes).count();
        match changes {
            0 => TieBreak::Default,
            _ if alike == 1 => TieBreak::FewestChanges,
            _ => TieBreak::LeastRss,
        }
    }

    fn is_tie(&self, change: Change) -> bool {
        let tie = 1.0 + self.question.tie_in(change.figure).0;
        (1.0 / tie..=tie).contains(&change.ratio)
    }

    /// The goal and the other figures of the winner, compared with the reference.
    fn comparison(&self, winner: usize, against: usize) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if let Some(gain) = change(self.cases, self.goal(), against, winner) {
            let best = self.ranking.standings[0].ratio;
            let mut own = self.ranking.standings.iter().filter(|standing| standing.design == winner);
            let lead = Lead { change: gain, is_least: own.any(|standing| standing.ratio <= best) };
            let candidates = self.ranking.standings.len();
            let is_candidate = self.ranking.standings.iter().any(|standing| standing.design == against);
            reasons.push(match (is_candidate, self.is_tie(gain)) {
                (false, _) => Reason::BestWithin { candidates, lead },
                (true, true) => Reason::NoBetter(lead),
                (true, false) => Reason::Better(lead),
            });
        }
        let others = Figure::MENTIONED.into_iter().filter(|&figure| figure != self.goal());
        let changes: Vec<Change> = others.filter_map(|figure| change(self.cases, figure, against, winner)).collect();
        let paid = changes.iter().filter(|change| change.ratio > 1.0 && !self.is_tie(**change));
        let won = changes.iter().filter(|change| change.ratio < 1.0 && !self.is_tie(**change));
        let (paid, won): (Vec<Change>, Vec<Change>) = (paid.copied().collect(), won.copied().collect());
        if paid.is_empty() && won.is_empty() {
            reasons.push(Reason::NoPrice);
        }
        reasons.extend(paid.into_iter().map(Reason::Price));
        reasons.extend(won.into_iter().map(Reason::Bonus));
        reasons
    }

    /// Designs outside the tie whose range overlaps with the winner's.
    fn overlapping(&self, winner: usize, tied: &[usize]) -> Vec<usize> {
        let Some(own) = self.ranking.standings.iter().find(|standing| standing.design == winner) else {
            return Vec::new();
        };
        let has_range = own.ratio_high > own.ratio_low;
        let overlaps = |other: &&Standing| {
            has_range && other.design != winner && !tied.contains(&other.design) && other.ratio_low <= own.ratio_high
        };
        self.ranking.standings.iter().filter(overlaps).map(|standing| standing.design).collect()
    }

    /// How the winner does on the single traces.
    fn spread(&self, winner: usize) -> Vec<Reason> {
        let standing = self.ranking.standings.iter().find(|standing| standing.design == winner);
        let (Some(standing), true) = (standing, self.cases.len() > 1) else { return Vec::new() };
        let ranked = |case: &Case| {
            let amount = |design: usize| {
                let amount = case.designs[design].amount(self.goal()).map_or(0.0, |amount| amount.middle);
                self.goal().at_least_one_unit(amount)
            };
            let least = self.ranking.standings.iter().map(|other| amount(other.design)).fold(f64::INFINITY, f64::min);
            amount(winner) <= least * (1.0 + self.tie())
        };
        let best = self.cases.iter().filter(|case| ranked(case)).count();
        let mut reasons = vec![Reason::BestOn { cases: best, of: self.cases.len() }];
        if best < self.cases.len() {
            let case = self.cases[standing.regret_worst_case].name.clone();
            reasons.push(Reason::RegretWorst { regret: standing.regret_worst, case });
        }
        reasons
    }

    fn not_compared(&self) -> impl Iterator<Item = Reason> {
        let Ranking { failed, killed, unknown, .. } = self.ranking.clone();
        let failed = (!failed.is_empty()).then_some(Reason::Failed { designs: failed });
        let killed = (!killed.is_empty()).then_some(Reason::Killed { designs: killed });
        let unknown = (!unknown.is_empty()).then_some(Reason::Unknown { designs: unknown });
        failed.into_iter().chain(killed).chain(unknown)
    }
}
