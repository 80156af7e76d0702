//! The result of a sweep, and of one of its shards.

use anyhow::Result;
use hksim_explore::digest::Digest;
use hksim_explore::question::Question;
use hksim_explore::rank::fronts;
use hksim_explore::shard::Shard;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::view;
use crate::answers::Answers;
use crate::commands::sim::csv;
use crate::flags::ModesFrom;
use crate::output::OutputArgs;
use crate::output::columns::ColumnsArgs;
use crate::output::stamp::Stamp;
use crate::system_time::{Priced, SystemTime};

/// What is known of a sweep besides its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Rows per trace.
    pub rows_per_trace: usize,
    /// What is asked of the designs.
    pub question: Question,
    /// Where the THP modes come from.
    pub modes: ModesFrom,
}

/// The result of a shard.
#[derive(Debug, Serialize)]
pub struct ShardResult {
    #[serde(flatten)]
    pub stamp: Stamp,
    /// Which shard it is.
    pub shard: Shard,
    /// The digest of all inputs of the sweep.
    pub sweep: Digest,
    /// Number of rows of the sweep.
    pub rows_total: usize,
    /// The sweep.
    pub head: Head,
    /// The shard's rows.
    pub rows: Vec<ShardRow>,
}

/// A row of a shard.
#[derive(Debug, Serialize)]
pub struct ShardRow {
    /// Its number in the whole sweep.
    pub row: usize,
    #[serde(flatten)]
    pub priced: Priced,
}

/// The result of a sweep, with times if a profile was given.
#[derive(Debug, Serialize)]
pub struct PricedSweep {
    #[serde(flatten)]
    stamp: Stamp,
    pub rows: Vec<Priced>,
    /// Rows on the Pareto front of installs and peak resident bytes, per trace. Rows with failed requests are not on it.
    pub pareto: Vec<usize>,
    /// Rows on the Pareto front of median system time and peak resident bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pareto_system_time: Option<Vec<usize>>,
    /// Which design is best.
    pub answers: Answers,
}

/// A point of each row that serves every request; the others are not compared.
fn of_served<T>(rows: &[Priced], point: impl Fn(&Priced) -> (T, T)) -> Vec<Option<(T, T)>> {
    rows.iter().map(|row| (row.report.requests_failed == 0).then(|| point(row))).collect()
}

impl PricedSweep {
    /// The result for the rows of a sweep.
    ///
    /// # Errors
    /// The goal's figure is not known.
    pub fn new(rows: Vec<Priced>, head: &Head) -> Result<PricedSweep> {
        let designs = head.rows_per_trace.max(1);
        let rss = |row: &Priced| row.report.rss_bytes_peak;
        let time = |row: &Priced| row.system_time.as_ref().map_or(0.0, SystemTime::rank_s);
        let has_times = rows.iter().any(|row| row.system_time.is_some());
        let installs = of_served(&rows, |row| (row.report.installs.total, rss(row)));
        let times = || of_served(&rows, |row| (time(row), rss(row) as f64));
        let (pareto, pareto_system_time) = (fronts(&installs, designs), has_times.then(|| fronts(&times(), designs)));
        let answers = Answers::of(&rows, designs, &head.question)?;
        Ok(PricedSweep { stamp: Stamp::HERE, rows, pareto, pareto_system_time, answers })
    }

    /// Writes the result.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn emit(&self, output: &OutputArgs, columns: &ColumnsArgs, head: &Head) -> Result<()> {
        output.emit(self, &self.csv_rows(), || match columns.is_given() {
            true => view::chosen(self, head, columns),
            false => view::table(self, head),
        })
    }

    /// The rows as CSV, each marked if it is on a Pareto front.
    fn csv_rows(&self) -> Vec<Map<String, Value>> {
        let rows = self.rows.iter().enumerate().map(|(number, row)| {
            let mut row = csv::row(row);
            let of_time = self.pareto_system_time.as_ref().map(|front| front.contains(&number));
            row.insert("row".into(), number.into());
            row.insert("pareto".into(), self.pareto.contains(&number).into());
            row.insert("pareto_system_time".into(), of_time.into());
            row
        });
        rows.collect()
    }
}
