//! Results as comma-separated values: one line per row, nested names joined by `_`.

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

/// Formats rows as CSV. Lists inside a row (timelines) are left out; JSON has them. The columns are those of all rows,
/// in order of first appearance.
///
/// # Errors
/// A row has no JSON form.
pub fn from_rows<R: Serialize>(rows: &[R]) -> Result<String> {
    let mut columns: Vec<String> = Vec::new();
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        let value = serde_json::to_value(row).context("row as JSON")?;
        let mut cells = Vec::new();
        flatten("", &value, &mut cells);
        for (name, _) in &cells {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        lines.push(cells);
    }
    let mut text = line(columns.iter().map(String::as_str));
    for cells in &lines {
        let cell = |column: &String| cells.iter().find(|(name, _)| name == column).map_or("", |(_, cell)| cell);
        text += &line(columns.iter().map(cell));
    }
    Ok(text)
}

fn flatten(prefix: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}_{name}") };
                flatten(&name, value, cells);
            }
        }
        Value::Array(_) => (),
        Value::Null => cells.push((prefix.to_string(), String::new())),
        Value::String(text) => cells.push((prefix.to_string(), text.clone())),
        other => cells.push((prefix.to_string(), other.to_string())),
    }
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    cells.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_names_are_joined_and_cells_quoted() {
        let rows = [json!({"a": {"b": 1, "c": null}, "list": [1, 2]}), json!({"a": {"b": 2}, "d": "x,\"y\""})];
        let text = from_rows(&rows).unwrap_or_default();
        assert_eq!(text, "a_b,a_c,d\n1,,\n2,,\"x,\"\"y\"\"\"\n");
    }
}
