//! Checks the figures of a result before they are used: sums of them must not overflow.

use serde_json::Value;
use thiserror::Error;

/// The largest figure of a result: whole numbers are exact up to here in every program that reads JSON. A sum of two
/// thousand of them fits 64 bits.
const FIGURE_MAX: u64 = 1 << 53;

/// A figure that no run can give.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place} is {figure}, which no run can give; the file is damaged")]
pub struct ImpossibleFigure {
    /// Its place in the result.
    pub place: String,
    /// The figure.
    pub figure: u64,
}

/// Fields that hold inputs, not figures. They may be any number, and their readers check them.
const INPUTS: [&str; 4] = ["policy", "kernel", "trace", "traces"];

/// Checks all figures of a result, at every depth.
///
/// # Errors
/// Names the first one that no run can give.
pub fn check(result: &Value) -> Result<(), ImpossibleFigure> {
    check_at(result, "")
}

fn check_at(value: &Value, place: &str) -> Result<(), ImpossibleFigure> {
    match value {
        Value::Number(number) => match number.as_u64().filter(|&figure| figure > FIGURE_MAX) {
            Some(figure) => Err(ImpossibleFigure { place: place.to_string(), figure }),
            None => Ok(()),
        },
        Value::Object(fields) => {
            fields.iter().filter(|(name, _)| !INPUTS.contains(&name.as_str())).try_for_each(|(name, field)| {
                check_at(field, &format!("{place}{}{name}", if place.is_empty() { "" } else { "." }))
            })
        }
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(at, item)| check_at(item, &format!("{place}[{at}]")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_figure_that_no_run_can_give_is_named() {
        let result =
            |figure: u64| json!({"policy": {"purge_delay_ns": u64::MAX}, "rows": [{"a": 1}, {"b": {"c": figure}}]});
        assert!(check(&result(FIGURE_MAX)).is_ok());
        let why = check(&result(FIGURE_MAX + 1)).expect_err("too large").to_string();
        assert_eq!(why, "rows[1].b.c is 9007199254740993, which no run can give; the file is damaged");
    }
}
