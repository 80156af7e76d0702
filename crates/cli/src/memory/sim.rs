//! `hksim sim` and `hksim sweep` for memory recordings.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_cost_model::Profile;
use hksim_explore::rank::fronts;
use hksim_memory_sim::Detail;

use super::predict::predict;
use super::settings::{MemoryArgs, NamedSetting};
use super::{sweep_view, view};
use crate::flags::{BaseKernel, PolicyArgs};
use crate::output::{OutputArgs, ResultFormat};
use hksim_memory_sim::MemoryRow;
use hksim_results::Stamp;
use hksim_results::sim::{MemorySimResult, MemorySweepResult};

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
    output.emit(&result, &[result.row.csv()], || view::one(&result.row, &setting))
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
    output: &OutputArgs,
) -> Result<MemorySweepResult> {
    if let Some(trace) = paths.iter().find(|path| !super::is_recording(path)) {
        bail!(
            "{}: not a memory recording (.hkm), but other files are; sweep the two kinds separately",
            trace.display()
        );
    }
    if memory.by.is_some() && output.format == ResultFormat::Table {
        bail!("--by site: the table of sweep has no room for call sites; use --format json, or sim");
    }
    let settings = memory.settings(policy, BaseKernel::AsItComes)?;
    let mut rows = Vec::new();
    for path in paths {
        rows.extend(predict(path, &settings, memory.by, Detail::Figures)?.into_iter().map(|row| row.priced(profile)));
    }
    emit_rows(rows, &settings, output)
}

/// Writes the result of a sweep. Each recording has a row for each setting.
///
/// # Errors
/// The output cannot be written.
pub fn emit_rows(rows: Vec<MemoryRow>, settings: &[NamedSetting], output: &OutputArgs) -> Result<MemorySweepResult> {
    // Allocators on one trace compete with each other; programs do not.
    let recordings = match trace_of(&rows[0]) {
        Some(_) => rows.iter().take_while(|row| trace_of(row) == trace_of(&rows[0])).count() / settings.len(),
        None => 1,
    };
    let group = recordings * settings.len();
    let csv: Vec<_> = rows.iter().map(MemoryRow::csv).collect();
    let cost = |row: &MemoryRow| Some((row.prediction.traps, row.prediction.rss_bytes_peak));
    let costs: Vec<_> = rows.iter().map(cost).collect();
    let result = MemorySweepResult { stamp: Stamp::here(), pareto: fronts(&costs, group), rows };
    output.emit(&result, &csv, || table(&result.rows, settings, group, &result.pareto))?;
    Ok(result)
}

fn trace_of(row: &MemoryRow) -> Option<&Path> {
    row.allocator.as_ref().map(|allocator| allocator.trace.as_path())
}

fn table(rows: &[MemoryRow], settings: &[NamedSetting], group: usize, pareto: &[usize]) -> String {
    let parts = rows.chunks(group).enumerate();
    let parts =
        parts.map(|(part, rows)| sweep_view::table(rows, settings, |row| pareto.contains(&(part * group + row))));
    parts.collect::<Vec<_>>().join("\n")
}
