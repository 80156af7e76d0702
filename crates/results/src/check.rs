//! The result of `check`.

use hksim_explore::budget::{Checked, CheckedRow, Row};
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// Designs held to a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckedBudget {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// Whether every row is within its limits.
    pub is_within: bool,
    /// One row per trace and design.
    pub rows: Vec<CheckedRow>,
}

/// A limit of a row, as a line of CSV and Parquet.
#[derive(Debug, Serialize)]
pub struct LimitRow<'a> {
    /// The row.
    #[serde(flatten)]
    pub row: &'a Row,
    /// Whether requests failed.
    pub has_failed_requests: bool,
    /// The limit, with what came of it.
    pub limit: Checked,
}

impl<'a> LimitRow<'a> {
    fn new(checked: &'a CheckedRow, limit: &Checked) -> LimitRow<'a> {
        LimitRow { row: &checked.row, has_failed_requests: checked.has_failed_requests, limit: *limit }
    }
}

/// One line for each limit of each row.
pub fn limit_rows(rows: &[CheckedRow]) -> Vec<LimitRow<'_>> {
    rows.iter().flat_map(|checked| checked.limits.iter().map(|limit| LimitRow::new(checked, limit))).collect()
}
