//! Properties of a prediction, written as `FIGURE[/FIGURE] < NUMBER`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// The figures of one run, by name: `faults`, `installs.total`, `os_calls.madvise`.
pub type Figures = BTreeMap<String, f64>;

/// A comparison of a figure, or of the quotient of two, with a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    figure: String,
    divisor: Option<String>,
    comparison: Comparison,
    bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

/// Longer operators first, so that `<=` is not read as `<`.
const SIGNS: [(&str, Comparison); 5] = [
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("==", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl FromStr for Property {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = SIGNS.iter().find_map(|&(sign, comparison)| Some((text.split_once(sign)?, comparison)));
        let form = || {
            format!("`{text}` is not a property; write FIGURE or FIGURE/FIGURE, then <, <=, ==, >= or >, then a number")
        };
        let ((left, right), comparison) = split.ok_or_else(form)?;
        let bound = right.trim().parse().map_err(|_| form())?;
        let (figure, divisor) = match left.split_once('/') {
            Some((figure, divisor)) => (figure.trim(), Some(divisor.trim().to_string())),
            None => (left.trim(), None),
        };
        if figure.is_empty() || divisor.as_ref().is_some_and(String::is_empty) {
            return Err(form());
        }
        Ok(Property { figure: figure.to_string(), divisor, comparison, bound })
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = SIGNS.iter().find(|(_, comparison)| *comparison == self.comparison).map_or("", |(sign, _)| sign);
        let divisor = self.divisor.as_ref().map(|divisor| format!("/{divisor}")).unwrap_or_default();
        write!(f, "{}{divisor} {sign} {}", self.figure, self.bound)
    }
}

impl Property {
    /// The compared value; infinite or not a number if the divisor is 0.
    ///
    /// # Errors
    /// A figure does not exist; the message lists all figures.
    pub fn value(&self, figures: &Figures) -> Result<f64, String> {
        let figure = |name: &String| {
            let names = || figures.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            figures.get(name).copied().ok_or_else(|| format!("there is no figure `{name}`; figures are {}", names()))
        };
        let divisor = self.divisor.as_ref().map_or(Ok(1.0), figure)?;
        Ok(figure(&self.figure)? / divisor)
    }

    /// Whether the property holds for a value.
    pub fn holds(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Less => value < self.bound,
            Comparison::LessOrEqual => value <= self.bound,
            Comparison::Equal => value == self.bound,
            Comparison::GreaterOrEqual => value >= self.bound,
            Comparison::Greater => value > self.bound,
        }
    }
}

/// The inputs and the duration of a result, which are not figures of the prediction.
const NO_FIGURES: [&str; 5] = ["elapsed_s", "kernel", "policy", "schema", "trace"];

/// All figures of a result, by dotted name. Lists (timelines) are omitted.
pub fn figures(result: &Value) -> Figures {
    let mut found = Figures::new();
    for (name, value) in result.as_object().into_iter().flatten() {
        if !NO_FIGURES.contains(&name.as_str()) {
            collect(value, name, &mut found);
        }
    }
    found
}

fn collect(value: &Value, name: &str, found: &mut Figures) {
    match value {
        Value::Number(number) => {
            found.extend(number.as_f64().map(|number| (name.to_string(), number)));
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                collect(value, &format!("{name}.{field}"), found);
            }
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Result<(f64, bool), String> {
        let result = json!({"faults": 30, "installs": {"total": 12, "thp": 0}, "timeline": [{"x": 1}], "elapsed_s": 1});
        let property: Property = text.parse()?;
        let value = property.value(&figures(&result))?;
        Ok((value, property.holds(value)))
    }

    #[test]
    fn figures_are_compared() {
        assert_eq!(value("faults > 29"), Ok((30.0, true)));
        assert_eq!(value("faults<=29.5"), Ok((30.0, false)));
        assert_eq!(value("installs.total / faults == 0.4"), Ok((0.4, true)));
        assert_eq!(value("installs.total/installs.thp > 1"), Ok((f64::INFINITY, true)));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(value("falts > 1").unwrap_err().contains("figures are faults, installs.thp, installs.total"));
        for text in ["faults", "faults > many", "> 3", "a/ > 3", ""] {
            assert!(value(text).unwrap_err().contains("is not a property"), "{text}");
        }
    }
}
