//! Many designs over many traces.

use hksim_trace::error::TraceError;
use hksim_trace::source::EventSource;
use rayon::prelude::*;
use serde::Serialize;

use crate::report::{SCHEMA, SimReport};
use crate::simulate::{Marks, SimConfig, SimError, simulate};

/// Opens a source at its start; every row of a sweep opens one for itself.
pub type OpenSource = Box<dyn Fn() -> Result<Box<dyn EventSource + Send>, TraceError> + Send + Sync>;

/// A trace to sweep over.
pub struct Input {
    /// The file's name, where there is one.
    pub file: Option<String>,
    /// How it is opened.
    pub open: OpenSource,
}

/// The result of a sweep: rows in the order traces x setups, whatever the number of workers.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// [`SCHEMA`].
    pub schema: u32,
    /// One simulation a row.
    pub rows: Vec<SimReport>,
    /// Rows on the Pareto front of installs and peak resident bytes, each trace by itself.
    pub pareto: Vec<usize>,
}

/// Simulates every setup on every trace, on the workers of the current rayon pool. `progress` gets newly done events.
///
/// # Errors
/// The first trace that is damaged, or design that cannot be.
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
    Ok(Sweep { schema: SCHEMA, rows, pareto })
}

fn simulate_row(input: &Input, config: &SimConfig, progress: &(dyn Fn(u64) + Sync)) -> Result<SimReport, SimError> {
    let mut source = (input.open)()?;
    let config = SimConfig { file: input.file.clone(), ..config.clone() };
    let reported = std::cell::Cell::new(0);
    let advance = |done: u64| progress(done - reported.replace(done));
    Ok(simulate(source.as_mut(), &config, Marks::Skip, &advance)?.report)
}

/// Rows that no other row beats in installs or peak resident bytes without losing in the other.
pub fn pareto(rows: &[SimReport]) -> Vec<usize> {
    let costs: Vec<(u64, u64)> = rows.iter().map(|row| (row.installs.total, row.rss_bytes_peak)).collect();
    let beaten = |cost: (u64, u64)| costs.iter().any(|&other| other.0 <= cost.0 && other.1 <= cost.1 && other != cost);
    (0..rows.len()).filter(|&row| !beaten(costs[row])).collect()
}
