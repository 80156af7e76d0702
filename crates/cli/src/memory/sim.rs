//! `hksim sim` and `hksim sweep` for memory recordings.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_cost_model::Profile;
use hksim_explore::rank::fronts;
use hksim_linux_mm::MemoryLimit;
use hksim_memory_sim::Detail;

use super::predict::predict;
use super::settings::{MemoryArgs, NamedSetting};
use super::sweep_view;
use crate::flags::{BaseKernel, PolicyArgs};
use crate::output::columns::ColumnsArgs;
use crate::output::{OutputArgs, ResultFormat, screen};
use hksim_memory_sim::MemoryRow;
use hksim_reports::{memory_prediction, site_installs};
use hksim_results::Stamp;
use hksim_results::sim::{MemorySimResult, MemorySweepResult};
use hksim_results::site_installs::SiteInstalls;
use hksim_text::table::text;

/// Simulates one setting.
///
/// # Errors
/// Bad input.
pub fn sim(
    path: &Path,
    policy: &PolicyArgs,
    memory: &MemoryArgs,
    profile: Option<&Profile>,
    output: &OutputArgs,
) -> Result<()> {
    let setting = memory.setting(policy, BaseKernel::AsItComes)?;
    let rows = predict(path, std::slice::from_ref(&setting), memory.by, Detail::Figures)?;
    let row = rows.into_iter().next().context("no result")?.priced(profile);
    let result = MemorySimResult { stamp: Stamp::here(), row };
    output.emit(&result, &[result.row.csv()], || memory_prediction::text(&result.row, screen::columns()))
}

/// How the rows of a sweep are printed.
#[derive(Clone, Copy, Debug)]
pub struct Printed<'a> {
    /// Destination and format.
    pub output: &'a OutputArgs,
    /// Columns of the table.
    pub columns: &'a ColumnsArgs,
}

impl Printed<'_> {
    /// Checks the columns, before the work starts.
    ///
    /// # Errors
    /// A name is of no column, or the result is not printed as a table.
    pub fn check(&self) -> Result<()> {
        self.columns.check(self.output, &sweep_view::COLUMNS, &sweep_view::flags().collect::<Vec<_>>())
    }
}

/// Simulates many settings.
///
/// # Errors
/// Bad input.
pub fn sweep(
    paths: &[PathBuf],
    policy: &PolicyArgs,
    memory: &MemoryArgs,
    profile: Option<&Profile>,
    printed: &Printed<'_>,
) -> Result<MemorySweepResult> {
    if let Some(trace) = paths.iter().find(|path| !super::is_recording(path)) {
        bail!(
            "{}: not a memory recording (.hkm), but other files are; sweep the two kinds separately",
            trace.display()
        );
    }
    if memory.by.is_some() && printed.output.format == ResultFormat::Table {
        bail!("--by site: the table of sweep has no room for call sites; use --format json, or sim");
    }
    printed.check()?;
    let settings = memory.settings(policy, BaseKernel::AsItComes)?;
    let mut rows = Vec::new();
    for path in paths {
        rows.extend(predict(path, &settings, memory.by, Detail::Figures)?.into_iter().map(|row| row.priced(profile)));
    }
    emit_rows(rows, Vec::new(), &settings, printed)
}

/// Writes the result of a sweep. Each recording has a row for each setting, at least one.
///
/// # Errors
/// The output cannot be written.
pub fn emit_rows(
    rows: Vec<MemoryRow>,
    by_site: Vec<SiteInstalls>,
    settings: &[NamedSetting],
    printed: &Printed<'_>,
) -> Result<MemorySweepResult> {
    // Allocators on one trace compete with each other; programs do not.
    let recordings = match trace_of(&rows[0]) {
        Some(_) => rows.iter().take_while(|row| trace_of(row) == trace_of(&rows[0])).count() / settings.len(),
        None => 1,
    };
    let group = recordings * settings.len();
    let csv: Vec<_> = rows.iter().map(MemoryRow::csv).collect();
    // Figures without some of the program's memory do not compete, nor do those of a program that is killed. Of a range,
    // the upper end competes.
    let survives = |row: &MemoryRow| row.prediction.memory_limit.as_ref().is_none_or(MemoryLimit::survives);
    let is_whole = |row: &MemoryRow| row.prediction.hugetlb_maps_failed == 0 && survives(row);
    let most = |row: &MemoryRow| row.prediction.at_most();
    let cost = |row: &MemoryRow| is_whole(row).then(|| (most(row).traps, most(row).rss_bytes_peak));
    let costs: Vec<_> = rows.iter().map(cost).collect();
    let result = MemorySweepResult { stamp: Stamp::here(), pareto: fronts(&costs, group), rows, by_site };
    printed.output.emit(&result, &csv, || table(&result, settings, group, printed.columns))?;
    Ok(result)
}

fn trace_of(row: &MemoryRow) -> Option<&Path> {
    row.allocator.as_ref().map(|allocator| allocator.trace.as_path())
}

fn table(result: &MemorySweepResult, settings: &[NamedSetting], group: usize, columns: &ColumnsArgs) -> String {
    let parts = result.rows.chunks(group).enumerate();
    let is_on_front = |part: usize| move |row: usize| result.pareto.contains(&(part * group + row));
    let by_site = text(&site_installs::lines(&result.by_site, screen::columns()));
    if columns.is_given() {
        let chosen = parts.map(|(part, rows)| {
            let table = sweep_view::rows_table(rows, settings, columns, is_on_front(part));
            (sweep_view::heading(&rows[0]), table)
        });
        return columns.text(&chosen.collect::<Vec<_>>()) + &by_site;
    }
    let parts = parts.map(|(part, rows)| sweep_view::table(rows, settings, is_on_front(part)));
    parts.collect::<Vec<_>>().join("\n") + &by_site
}
