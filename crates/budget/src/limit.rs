//! The most that a budget allows: an amount, or as much more than the stored result.

use hksim_policy::units::{parse_count, parse_size};
use serde::Deserialize;

use crate::metric::{Metric, Unit};

/// A limit as the budget has it: a number, or a text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a text such as \"64M\" or \"+1%\"")]
pub enum Written {
    /// A number.
    Number(f64),
    /// A text with a unit, or a change from the stored result.
    Text(String),
}

/// The greatest allowed amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Most {
    /// This amount.
    Amount(f64),
    /// The stored amount and this share of it.
    Share(f64),
    /// The stored amount and this much more.
    More(f64),
}

/// A limit of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The metric.
    pub metric: Metric,
    /// The most.
    pub most: Most,
    /// The limit as the budget has it.
    pub text: String,
}

impl Limit {
    /// A limit as the budget has it; the error is what was expected.
    ///
    /// # Errors
    /// It is no amount of this metric.
    pub fn of(metric: Metric, written: &Written) -> Result<Limit, &'static str> {
        let expected = match metric.unit() {
            Unit::Bytes => "a size from 0 (64M), or a change from the stored result (+1%, +64K)",
            Unit::Count => "a whole number from 0 (100), or a change from the stored result (+1%, +10)",
            Unit::Number => "a number from 0 (2.5), or a change from the stored result (+1%, +0.5)",
        };
        let (most, text) = match written {
            Written::Number(number) => (of_number(metric, *number).map(Most::Amount), number.to_string()),
            Written::Text(text) => (of_text(metric, text.trim()), text.clone()),
        };
        most.map(|most| Limit { metric, most, text }).ok_or(expected)
    }

    /// The greatest allowed amount; `None` if it is a change and there is no stored amount.
    pub fn most(&self, stored: Option<f64>) -> Option<f64> {
        match self.most {
            Most::Amount(amount) => Some(amount),
            Most::Share(share) => stored.map(|stored| stored * (1.0 + share)),
            Most::More(more) => stored.map(|stored| stored + more),
        }
    }

    /// Whether it is a change from the stored result.
    pub fn is_change(&self) -> bool {
        !matches!(self.most, Most::Amount(_))
    }
}

fn of_text(metric: Metric, text: &str) -> Option<Most> {
    let Some(change) = text.strip_prefix('+') else { return amount(metric, text).map(Most::Amount) };
    match change.strip_suffix('%') {
        Some(percent) => {
            of_number(Metric::NsPerCall, percent.trim().parse().ok()?).map(|percent| Most::Share(percent / 100.0))
        }
        None => amount(metric, change).map(Most::More),
    }
}

fn amount(metric: Metric, text: &str) -> Option<f64> {
    match metric.unit() {
        Unit::Bytes => parse_size(text).ok().map(|bytes| bytes as f64),
        Unit::Count => parse_count(text).ok().map(|count| count as f64),
        Unit::Number => text.parse().ok().and_then(|number| of_number(metric, number)),
    }
}

/// A number that can be an amount of the metric.
fn of_number(metric: Metric, number: f64) -> Option<f64> {
    let is_amount = number.is_finite() && number >= 0.0 && (metric.unit() == Unit::Number || number.fract() == 0.0);
    is_amount.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_amounts_or_changes() {
        let most = |metric, text: &str| Limit::of(metric, &Written::Text(text.into())).map(|limit| limit.most);
        assert_eq!(most(Metric::RssPeak, "64M"), Ok(Most::Amount(67_108_864.0)));
        assert_eq!(most(Metric::RssBytesEnd, "+64K"), Ok(Most::More(65_536.0)));
        assert_eq!(most(Metric::Installs, "+1%"), Ok(Most::Share(0.01)));
        assert_eq!(most(Metric::TlbMisses, "+1M"), Ok(Most::More(1e6)));
        assert_eq!(most(Metric::NsPerCall, "+0.5"), Ok(Most::More(0.5)));
        for (metric, text) in [
            (Metric::Installs, "+-1%"),
            (Metric::Installs, "+nan%"),
            (Metric::Installs, "1%"),
            (Metric::RssPeak, "+"),
            (Metric::Vmas, "+1.5"),
        ] {
            assert!(most(metric, text).is_err(), "{text}");
        }
        assert!(Limit::of(Metric::Vmas, &Written::Number(1.5)).is_err());
        assert!(Limit::of(Metric::NsPerCall, &Written::Number(1.5)).is_ok());
    }

    #[test]
    fn a_change_is_from_the_stored_amount() {
        let limit = |text: &str| Limit::of(Metric::Installs, &Written::Text(text.into())).expect("a limit");
        assert_eq!(limit("+3%").most(Some(200.0)), Some(206.0));
        assert_eq!(limit("+10").most(Some(200.0)), Some(210.0));
        assert_eq!(limit("+10").most(None), None);
        assert_eq!(limit("10").most(None), Some(10.0));
    }
}
