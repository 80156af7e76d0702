//! A sweep as text.

use anyhow::Result;
use hksim_explore::described::Described;
use hksim_reports::sweep;
use hksim_results::sweep::{Head, PricedSweep};

use crate::output::columns::{ColumnsArgs, FRONT};
use crate::output::table::text;
use crate::output::{OutputArgs, screen};

/// Checks `--columns`.
///
/// # Errors
/// A name is of no column, or the result is not printed as a table.
pub fn check(columns: &ColumnsArgs, output: &OutputArgs) -> Result<()> {
    let figures: Vec<&str> = ["#", FRONT].into_iter().chain(sweep::figure_names()).collect();
    columns.check(output, &figures, &sweep::setting_names().collect::<Vec<_>>())
}

/// Writes the result.
///
/// # Errors
/// The output cannot be written.
pub fn emit<P: Described>(
    result: &PricedSweep<P>,
    output: &OutputArgs,
    columns: &ColumnsArgs,
    head: &Head,
) -> Result<()> {
    output.emit(result, &result.csv_rows(), || match columns.is_given() {
        true => columns.text(&sweep::tables(result, head, &|name| columns.names(name))),
        false => text(&sweep::lines(result, head, screen::columns())),
    })
}
