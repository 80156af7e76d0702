//! What a user asks of many designs: the goal, what counts as a tie, limits, weights of traces.

use std::fmt;
use std::str::FromStr;

use hksim_policy::units::{parse_count, parse_size, parse_time};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::figures::{Amount, Figure};
use hksim_text::nearest;
use hksim_text::units;

/// Why an option is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QuestionError {
    /// Not a figure.
    #[error("`{0}`: unknown figure; figures are {words}{question}", words = Figure::words(), question = nearest::question(.0, Figure::ALL.map(Figure::word)))]
    Figure(String),
    /// Not a percentage.
    #[error("`{0}`: expected a percentage from 0% to 100% (1%)")]
    Tie(String),
    /// Not a limit.
    #[error(
        "`{0}`: expected FIGURE +N% or FIGURE -N% (relative to the baseline), or FIGURE AMOUNT: \"rss +10%\", \"rss 64M\", \"vmas 1000\", \"time 20ns\", \"sys-time 20ms\""
    )]
    Limit(String),
    /// A relative limit that nothing can meet.
    #[error("`{0}`: a figure cannot fall by 100 % or more")]
    Impossible(String),
    /// Not a weight.
    #[error("`{0}`: expected positive numbers separated by commas, one per trace (1,1,2.5)")]
    Weights(String),
    /// Too few or too many weights.
    #[error("--weights has {}, but there {}; give one weight per trace", units::of(*given as u64, "number"), there_are(*traces))]
    WeightCount {
        /// Number of weights.
        given: usize,
        /// Number of traces.
        traces: usize,
    },
}

/// `is 1 trace`, `are 2 traces`.
fn there_are(traces: usize) -> String {
    format!("{} {}", if traces == 1 { "is" } else { "are" }, units::of(traces as u64, "trace"))
}

/// The figure to minimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Goal(pub Figure);

impl FromStr for Goal {
    type Err = QuestionError;

    fn from_str(word: &str) -> Result<Goal, QuestionError> {
        Figure::from_word(word).map(Goal).ok_or_else(|| QuestionError::Figure(word.to_string()))
    }
}

/// The share by which two designs may differ and still count as equal: 0 to 1. Written as a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tie(pub f64);

impl Default for Tie {
    /// 1 %.
    fn default() -> Tie {
        Tie(0.01)
    }
}

impl FromStr for Tie {
    type Err = QuestionError;

    fn from_str(text: &str) -> Result<Tie, QuestionError> {
        let share = percentage(text).filter(|share| (0.0..=1.0).contains(share));
        share.map(Tie).ok_or_else(|| QuestionError::Tie(text.to_string()))
    }
}

impl fmt::Display for Tie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0 * 100.0)
    }
}

/// `12.5%` as 0.125.
fn percentage(text: &str) -> Option<f64> {
    let number: f64 = text.strip_suffix('%')?.trim_end().parse().ok()?;
    number.is_finite().then_some(number / 100.0)
}

/// The greatest allowed amount of a figure, on every trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The figure.
    pub figure: Figure,
    /// Its bound.
    pub bound: Bound,
    /// The limit as it was given.
    pub text: String,
}

/// A bound of a [`Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// This much of the baseline's amount on the same trace: 1.1 for `+10%`.
    OfDefault(f64),
    /// This amount: bytes, seconds, nanoseconds per call or a count.
    Amount(f64),
}

impl Limit {
    /// The greatest allowed amount on a trace where the baseline has `baseline`.
    pub fn amount_max(&self, baseline: Amount) -> f64 {
        match self.bound {
            Bound::OfDefault(share) => self.figure.at_least_one_unit(baseline.middle) * share,
            Bound::Amount(amount) => amount,
        }
    }
}

impl FromStr for Limit {
    type Err = QuestionError;

    fn from_str(text: &str) -> Result<Limit, QuestionError> {
        let unreadable = || QuestionError::Limit(text.to_string());
        let named = |figure: Figure| Some((figure, text.trim().strip_prefix(figure.word())?));
        let unknown = || {
            let is_end = |character: char| character.is_whitespace() || character == '+';
            let word = text.trim().split(is_end).next().unwrap_or_default();
            QuestionError::Figure(word.to_string())
        };
        let named = Figure::ALL.into_iter().filter_map(named);
        // `rss` is the beginning of `rss-end`.
        let (figure, bound) = named.max_by_key(|(figure, _)| figure.word().len()).ok_or_else(unknown)?;
        // A space may be left out before a sign: `rss+10%`.
        if !bound.starts_with([' ', '\t', '+', '-']) {
            return Err(unreadable());
        }
        let bound = bound.trim();
        let bound = if bound.ends_with('%') {
            let is_signed = bound.starts_with(['+', '-']);
            let share = percentage(bound).filter(|_| is_signed).ok_or_else(unreadable)?;
            if share <= -1.0 {
                return Err(QuestionError::Impossible(text.to_string()));
            }
            Bound::OfDefault(1.0 + share)
        } else {
            Bound::Amount(amount(figure, bound).ok_or_else(unreadable)?)
        };
        Ok(Limit { figure, bound, text: text.trim().to_string() })
    }
}

/// An amount in the unit of its figure.
fn amount(figure: Figure, text: &str) -> Option<f64> {
    let amount = match figure {
        Figure::Rss | Figure::RssEnd => parse_size(text).ok()? as f64,
        Figure::SysTime => parse_time(text).ok()? as f64 / 1e9,
        Figure::Time => parse_time(text).ok()? as f64,
        Figure::Installs | Figure::TlbMisses | Figure::Vmas => parse_count(text).ok()? as f64,
    };
    Some(amount)
}

/// Weights of the traces; empty for equal weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weights(pub Vec<f64>);

impl Weights {
    /// One weight for each trace; the greatest is 1.
    ///
    /// # Errors
    /// The number of weights differs from the number of traces.
    pub fn of_traces(&self, traces: usize) -> Result<Vec<f64>, QuestionError> {
        match self.0.len() {
            0 => Ok(vec![1.0; traces]),
            // Only proportions matter. With the greatest at 1, sums stay finite.
            given if given == traces => {
                let greatest = self.0.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                Ok(self.0.iter().map(|weight| weight / greatest).collect())
            }
            given => Err(QuestionError::WeightCount { given, traces }),
        }
    }
}

impl FromStr for Weights {
    type Err = QuestionError;

    fn from_str(text: &str) -> Result<Weights, QuestionError> {
        let weight = |word: &str| word.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight > 0.0);
        let weights: Option<Vec<f64>> = text.split(',').map(weight).collect();
        weights.map(Weights).ok_or_else(|| QuestionError::Weights(text.to_string()))
    }
}

/// What a user asks: a question whose goal may follow from what is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The figure to minimise, if one was named.
    pub goal: Option<Goal>,
    /// What counts as a tie.
    pub tie: Tie,
    /// Weights of the traces.
    pub weights: Weights,
}

impl Asked {
    /// The question, with this goal unless another was named.
    pub fn or(&self, goal: Figure) -> Question {
        Question { goal: self.goal.unwrap_or(Goal(goal)), tie: self.tie, weights: self.weights.clone() }
    }
}

impl Question {
    /// By how much designs may differ in a figure and still count as equal: no less than the figure's own error.
    pub fn tie_in(&self, figure: Figure) -> Tie {
        Tie(self.tie.0.max(figure.order_error_share()))
    }
}

/// A question about a table of designs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The figure to minimise.
    pub goal: Goal,
    /// What counts as a tie.
    pub tie: Tie,
    /// Weights of the traces.
    pub weights: Weights,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_their_units() {
        let bound = |text: &str| text.parse::<Limit>().map(|limit| limit.bound);
        assert_eq!(bound("rss +10%"), Ok(Bound::OfDefault(1.1)));
        assert_eq!(bound(" installs  -50% "), Ok(Bound::OfDefault(0.5)));
        assert_eq!((bound("rss+10%"), bound("sys-time-5%")), (Ok(Bound::OfDefault(1.1)), Ok(Bound::OfDefault(0.95))));
        assert_eq!(bound("rss 64M"), Ok(Bound::Amount(67_108_864.0)));
        assert_eq!(bound("rss-10%"), Ok(Bound::OfDefault(0.9)));
        assert_eq!("rss-end +10%".parse::<Limit>().map(|limit| limit.figure), Ok(Figure::RssEnd));
        assert_eq!(bound("vmas 1k"), Ok(Bound::Amount(1000.0)));
        assert_eq!(bound("sys-time 20ms"), Ok(Bound::Amount(0.02)));
        assert_eq!((bound("time 20ns"), bound("time +2%")), (Ok(Bound::Amount(20.0)), Ok(Bound::OfDefault(1.02))));
        for (text, part) in [
            ("rss 10%", "FIGURE +N%"),
            ("rss", "FIGURE +N%"),
            ("rss64M", "FIGURE +N%"),
            ("rss +x%", "FIGURE +N%"),
            ("vmas 64Q", "FIGURE +N%"),
            ("pss +10%", "unknown figure; figures are time, installs, sys-time, rss, rss-end, tlb-misses, vmas"),
            ("rss -100%", "cannot fall by 100 %"),
        ] {
            let why = text.parse::<Limit>().expect_err(text).to_string();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn ties_and_weights_have_ranges() {
        assert_eq!("1%".parse(), Ok(Tie(0.01)));
        assert_eq!("0 %".parse(), Ok(Tie(0.0)));
        for text in ["1", "-1%", "101%", "nan%", "%"] {
            assert_eq!(text.parse::<Tie>(), Err(QuestionError::Tie(text.into())));
        }
        assert_eq!("1,2.5".parse(), Ok(Weights(vec![1.0, 2.5])));
        for text in ["", "1,,2", "0", "-1", "inf", "a"] {
            assert_eq!(text.parse::<Weights>(), Err(QuestionError::Weights(text.into())));
        }
        assert_eq!(Weights::default().of_traces(2), Ok(vec![1.0, 1.0]));
        assert_eq!(Weights(vec![1e308, 5e307]).of_traces(2), Ok(vec![1.0, 0.5]));
        assert_eq!(
            Weights(vec![1.0, 2.0]).of_traces(1).map_err(|why| why.to_string()),
            Err("--weights has 2 numbers, but there is 1 trace; give one weight per trace".into())
        );
        assert_eq!(Weights(vec![1.0]).of_traces(2), Err(QuestionError::WeightCount { given: 1, traces: 2 }));
    }
}
