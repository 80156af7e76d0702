//! Results as tables: one line per row, nested names joined by `_`. The same columns for CSV and Parquet.

use serde::Serialize;
use serde_json::{Error, Value};

/// The columns of a sweep, each with the kind of its cells: a column that is empty in every row must keep its kind.
const COLUMNS: &str = include_str!("columns.tsv");

/// The kind of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Counts and bytes.
    Unsigned,
    /// Numbers that may be negative or fractions.
    Float,
    /// True or false.
    Bool,
    /// Anything else.
    Text,
}

impl Kind {
    /// The kind of a cell; `None` for an empty one.
    fn of(cell: &Value) -> Option<Kind> {
        match cell {
            Value::Null => None,
            Value::Bool(_) => Some(Kind::Bool),
            Value::Number(number) if number.is_u64() => Some(Kind::Unsigned),
            Value::Number(_) => Some(Kind::Float),
            _ => Some(Kind::Text),
        }
    }

    /// The kind that holds cells of both kinds.
    fn with(self, other: Kind) -> Kind {
        match (self, other) {
            (one, other) if one == other => one,
            (Kind::Unsigned | Kind::Float, Kind::Unsigned | Kind::Float) => Kind::Float,
            _ => Kind::Text,
        }
    }

    fn from_word(word: &str) -> Option<Kind> {
        match word {
            "unsigned" => Some(Kind::Unsigned),
            "float" => Some(Kind::Float),
            "bool" => Some(Kind::Bool),
            "text" => Some(Kind::Text),
            _ => None,
        }
    }
}

/// The declared columns of a sweep.
pub fn declared() -> impl Iterator<Item = (&'static str, Kind)> {
    let column = |line: &'static str| {
        let (name, kind) = line.split_once('\t')?;
        Some((name, Kind::from_word(kind)?))
    };
    COLUMNS.lines().filter_map(column)
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The kind of its cells.
    pub kind: Kind,
    /// Its cells, one per row; null for an empty cell.
    pub cells: Vec<Value>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The columns, in order of first appearance in the rows.
    pub columns: Vec<Column>,
    /// Number of rows.
    pub rows: usize,
}

impl Table {
    /// The table of some rows. Lists inside a row (timelines) are left out; JSON has them.
    ///
    /// # Errors
    /// A row has no JSON form.
    pub fn of<R: Serialize>(rows: &[R]) -> Result<Table, Error> {
        Table::of_values(&mut rows.iter().map(serde_json::to_value))
    }

    /// Not generic over the row, which may be any of many types.
    fn of_values(rows: &mut dyn ExactSizeIterator<Item = Result<Value, Error>>) -> Result<Table, Error> {
        let mut columns: Vec<(String, Vec<Value>)> = Vec::new();
        let rows_total = rows.len();
        for (number, row) in rows.enumerate() {
            let mut cells = Vec::new();
            flatten("", row?, &mut cells);
            for (name, cell) in cells {
                let column = columns.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                    columns.push((name, Vec::new()));
                    columns.len() - 1
                });
                // Rows before this one may lack the column.
                columns[column].1.resize(number, Value::Null);
                columns[column].1.push(cell);
            }
        }
        let columns = columns.into_iter().map(|(name, mut cells)| {
            cells.resize(rows_total, Value::Null);
            Column { kind: kind(&name, &cells), name, cells }
        });
        Ok(Table { columns: columns.collect(), rows: rows_total })
    }

    /// The table as comma-separated values. A text that a spreadsheet would take for a formula gets an apostrophe before
    /// it.
    pub fn csv(&self) -> String {
        let mut text = line(self.columns.iter().map(|column| no_formula(column.name.clone())));
        for row in 0..self.rows {
            text += &line(self.columns.iter().map(|column| csv_cell(&column.cells[row])));
        }
        text
    }
}

/// The kind of a column: that of its cells, or the declared one if all are empty.
fn kind(name: &str, cells: &[Value]) -> Kind {
    let found = cells.iter().filter_map(Kind::of).reduce(Kind::with);
    let declared = || declared().find(|(known, _)| *known == name).map(|(_, kind)| kind);
    found.or_else(declared).unwrap_or(Kind::Text)
}

fn flatten(prefix: &str, value: Value, cells: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if prefix.is_empty() { name } else { format!("{prefix}_{name}") };
                flatten(&name, value, cells);
            }
        }
        Value::Array(_) => (),
        cell => cells.push((prefix.to_string(), cell)),
    }
}

/// A cell as text; empty for null.
pub(crate) fn cell_text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A cell as text of a spreadsheet.
fn csv_cell(cell: &Value) -> String {
    let text = cell_text(cell);
    if cell.is_string() { no_formula(text) } else { text }
}

/// A text that no spreadsheet takes for a formula.
fn no_formula(text: String) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

fn quoted(cell: String) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_names_are_joined_and_cells_quoted() {
        let rows = [json!({"a": {"b": 1, "c": null}, "list": [1, 2]}), json!({"a": {"b": 2}, "d": "x,\"y\""})];
        let text = Table::of(&rows).map(|table| table.csv()).unwrap_or_default();
        assert_eq!(text, "a_b,a_c,d\n1,,\n2,,\"x,\"\"y\"\"\"\n");
    }

    #[test]
    fn texts_are_no_formulas_and_numbers_stay() {
        for (name, cell) in
            [("=1+1", "'=1+1"), ("+a", "'+a"), ("-a", "'-a"), ("@a", "'@a"), ("\ta", "'\ta"), ("a=1", "a=1")]
        {
            let rows = [json!({"a": -1, "b": -0.5, "c": name})];
            assert_eq!(Table::of(&rows).expect("a table").csv(), format!("a,b,c\n-1,-0.5,{cell}\n"));
        }
    }

    #[test]
    fn kinds_come_from_all_cells_or_from_the_declaration() {
        let rows = [
            json!({"n": 1, "f": 1, "b": true, "m": 1, "kernel_hugetlb_pool_pages": null, "none": null}),
            json!({"n": 2, "f": 0.5, "b": null, "m": "x", "late": -1}),
        ];
        let table = Table::of(&rows).expect("a table");
        let kind = |name: &str| table.columns.iter().find(|column| column.name == name).map(|column| column.kind);
        assert_eq!((kind("n"), kind("f"), kind("b")), (Some(Kind::Unsigned), Some(Kind::Float), Some(Kind::Bool)));
        assert_eq!((kind("m"), kind("late"), kind("none")), (Some(Kind::Text), Some(Kind::Float), Some(Kind::Text)));
        assert_eq!(kind("kernel_hugetlb_pool_pages"), Some(Kind::Unsigned));
        assert!(table.columns.iter().all(|column| column.cells.len() == 2));
    }

    #[test]
    fn every_declaration_has_a_kind() {
        assert_eq!(declared().count(), COLUMNS.lines().count());
    }
}
