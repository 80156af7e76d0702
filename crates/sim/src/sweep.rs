//! Simulates many designs on many traces.

use hksim_trace::error::TraceError;
use hksim_trace::source::EventSource;
use rayon::prelude::*;
use serde::Serialize;

use crate::report::SimReport;
use crate::simulate::{Marks, SimConfig, SimError, simulate};

/// Opens a source at its start. Every row of a sweep opens its own source.
pub type OpenSource = Box<dyn Fn() -> Result<Box<dyn EventSource + Send>, TraceError> + Send + Sync>;

/// A trace to sweep over.
pub struct Input {
    /// The file name, if any.
    pub file: Option<String>,
    /// Opens the trace.
    pub open: OpenSource,
}

/// The result of a sweep. Rows are ordered by trace, then by configuration, regardless of the number of workers.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// One row per simulation.
    pub rows: Vec<SimReport>,
    /// Indices of the rows on the Pareto front of installs and peak resident bytes, separately for each trace.
    pub pareto: Vec<usize>,
}

/// Simulates every configuration on every trace, on the workers of the current rayon pool. Calls `progress` with the
/// number of events performed since its previous call for the same row.
///
/// # Errors
/// The error of the first simulation that fails.
pub fn sweep(inputs: &[Input], configs: &[SimConfig], progress: &(dyn Fn(u64) + Sync)) -> Result<Sweep, SimError> {
    let jobs: Vec<(&Input, &SimConfig)> =
        inputs.iter().flat_map(|input| configs.iter().map(move |config| (input, config))).collect();
    let rows = jobs
        .into_par_iter()
        .map(|(input, config)| simulate_row(input, config, progress))
        .collect::<Result<Vec<SimReport>, SimError>>()?;
    let per_trace = configs.len().max(1);
    let pareto = rows
        .chunks(per_trace)
        .enumerate()
        .flat_map(|(trace, rows)| pareto(rows).into_iter().map(move |row| trace * per_trace + row))
        .collect();
    Ok(Sweep { rows, pareto })
}

fn simulate_row(input: &Input, config: &SimConfig, progress: &(dyn Fn(u64) + Sync)) -> Result<SimReport, SimError> {
    let mut source = (input.open)()?;
    let config = SimConfig { file: input.file.clone(), ..config.clone() };
    let reported = std::cell::Cell::new(0);
    let advance = |done: u64| progress(done - reported.replace(done));
    Ok(simulate(source.as_mut(), &config, Marks::Skip, &advance)?.report)
}

/// Indices of the rows on the Pareto front. For such a row, no other row is at least as good in both installs and peak
/// resident bytes and better in one of them.
pub fn pareto(rows: &[SimReport]) -> Vec<usize> {
    let costs: Vec<(u64, u64)> = rows.iter().map(|row| (row.installs.total, row.rss_bytes_peak)).collect();
    let beaten = |cost: (u64, u64)| costs.iter().any(|&other| other.0 <= cost.0 && other.1 <= cost.1 && other != cost);
    (0..rows.len()).filter(|&row| !beaten(costs[row])).collect()
}
