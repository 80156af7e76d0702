//! The result of a sweep, and of one of its shards.

use std::path::Path;

use hksim_cost_model::SystemTime;
use hksim_explore::answers::Answers;
use hksim_explore::described::Described;
use hksim_explore::digest::Digest;
use hksim_explore::error::ExploreError;
use hksim_explore::figure_range;
use hksim_explore::figures::Figures;
use hksim_explore::flags::ModesFrom;
use hksim_explore::priced::{self, Priced};
use hksim_explore::question::Asked;
use hksim_explore::rank::fronts;
use hksim_explore::shard::Shard;
use hksim_policy::Policy;
use hksim_sim::report::{SCHEMA, version};
use hksim_trace::named_file;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::csv;
use crate::error::ResultError;
use crate::stamp::Stamp;

/// What is known of a sweep besides its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Rows per trace.
    pub rows_per_trace: usize,
    /// What is asked of the designs.
    pub question: Asked,
    /// Where the THP modes come from.
    pub modes: ModesFrom,
}

/// The result of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardResult<P = Policy> {
    /// The schema, and the version that wrote it.
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
    pub rows: Vec<ShardRow<P>>,
}

/// A row of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardRow<P = Policy> {
    /// Its number in the whole sweep.
    pub row: usize,
    /// The row.
    #[serde(flatten)]
    pub priced: Priced<P>,
}

/// The result of a sweep, with times if a profile was given. `P` describes the allocator of its rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PricedSweep<P = Policy> {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// One row per trace and design.
    pub rows: Vec<Priced<P>>,
    /// Rows on the Pareto front of installs and peak resident bytes, per trace. Rows with failed requests, and rows
    /// that are killed at a memory limit, are not on it.
    pub pareto: Vec<usize>,
    /// Rows on the Pareto front of median system time and peak resident bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pareto_system_time: Option<Vec<usize>>,
    /// Rows on the Pareto front of the median time of a call and peak resident bytes. Rows without a time are not on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pareto_time: Option<Vec<usize>>,
    /// Which design is best.
    pub answers: Answers,
}

/// A point of each row that serves every request and is not killed at a memory limit; the others are not compared.
fn of_served<P, T>(rows: &[Priced<P>], point: impl Fn(&Priced<P>) -> (T, T)) -> Vec<Option<(T, T)>> {
    rows.iter().map(|row| Figures::of(&row.report).is_served().then(|| point(row))).collect()
}

impl<P: Described> PricedSweep<P> {
    /// The result for the rows of a sweep.
    ///
    /// # Errors
    /// The goal's figure is not known.
    pub fn new(rows: Vec<Priced<P>>, head: &Head) -> Result<PricedSweep<P>, ExploreError> {
        let designs = head.rows_per_trace.max(1);
        let rss = |row: &Priced<P>| row.report.rss_bytes_peak;
        let time = |row: &Priced<P>| row.system_time.as_ref().map_or(0.0, SystemTime::rank_s);
        let has_times = rows.iter().any(|row| row.system_time.is_some());
        let installs = of_served(&rows, |row| (row.report.installs.total, rss(row)));
        let times = || of_served(&rows, |row| (time(row), rss(row) as f64));
        let (pareto, pareto_system_time) = (fronts(&installs, designs), has_times.then(|| fronts(&times(), designs)));
        let timed = |row: &Priced<P>| Some((row.time.as_ref()?.ns_per_call.median, rss(row) as f64));
        let timed: Vec<_> =
            rows.iter().zip(&installs).map(|(row, served)| timed(row).filter(|_| served.is_some())).collect();
        let pareto_time = timed.iter().any(Option::is_some).then(|| fronts(&timed, designs));
        let answers = Answers::of(&rows, designs, &head.question.or(priced::goal(&rows, designs)))?;
        Ok(PricedSweep { stamp: Stamp::here(), rows, pareto, pareto_system_time, pareto_time, answers })
    }

    /// The rows as CSV, each marked if it is on a Pareto front.
    pub fn csv_rows(&self) -> Vec<Map<String, Value>> {
        let rows = self.rows.iter().enumerate().map(|(number, row)| {
            let mut row = csv::row(row);
            let is_on = |front: &Option<Vec<usize>>| front.as_ref().map(|front| front.contains(&number));
            row.insert("row".into(), number.into());
            row.insert("pareto".into(), self.pareto.contains(&number).into());
            row.insert("pareto_system_time".into(), is_on(&self.pareto_system_time).into());
            row.insert("pareto_time".into(), is_on(&self.pareto_time).into());
            row
        });
        rows.collect()
    }
}

/// A shard, with the command that made it.
///
/// # Errors
/// The file is no shard, or another version wrote it.
pub fn read_shard(path: &Path) -> Result<(Vec<String>, ShardResult), ResultError> {
    let file = path.display();
    let text =
        named_file::read(path).map_err(|why| ResultError::file_by(format!("{file}: cannot read the shard"), why))?;
    let not_a_shard = |why: serde_json::Error| {
        let message = format!("{file}: not a shard; shards are results of `sweep --shard I/N --format json`");
        ResultError::file_by(message, why)
    };
    let Stamp { schema, hksim_version } = serde_json::from_slice(&text).map_err(not_a_shard)?;
    if (schema, &*hksim_version) != (SCHEMA, version()) {
        return Err(ResultError::file(format!(
            "{file}: written by hksim {hksim_version} (schema {schema}), and this is {} (schema {SCHEMA}); merge with the version that wrote it",
            version()
        )));
    }
    let shard: Value = serde_json::from_slice(&text).map_err(not_a_shard)?;
    figure_range::check(&shard)
        .map_err(|why| ResultError::In { file: file.to_string(), source: Box::new(why.into()) })?;
    let words = shard["command"].as_array().into_iter().flatten();
    let command = words.filter_map(|word| word.as_str().map(str::to_string)).collect();
    Ok((command, serde_json::from_value(shard).map_err(not_a_shard)?))
}
