//! `info A B`: what tells two traces apart.

use std::collections::BTreeMap;
use std::path::Path;

use hksim_text::units;
use hksim_trace::error::TraceError;
use hksim_trace::header::Clock;
use hksim_trace::hkt::TraceReader;
use hksim_trace::info::Info;
use serde::Serialize;

use super::matching::{SiteRow, site_rows};
use super::sites::By;

/// Ratios closer to 1 than this do not tell traces apart: 1 %.
const ALIKE: f64 = 0.01;
/// Number of differences in words.
const SENTENCES: usize = 3;

/// Two traces side by side.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// Names of the two files.
    pub traces: [String; 2],
    /// The largest differences in words.
    pub sentences: Vec<String>,
    /// Figures of both traces.
    pub figures: Vec<Figure>,
    /// Requested sizes by powers of two.
    pub sizes: Vec<SizeRow>,
    /// The share of requests whose size would have to change by a power of two or more, for the sizes to be distributed
    /// alike (total variation distance). From 0 to 1.
    pub size_distance: f64,
    /// The call sites with the largest differences, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<Vec<SiteRow>>,
    #[serde(skip)]
    notes: Vec<String>,
}

/// A figure of both traces.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// Its field in the result of `info`; `allocations` are the calls of all functions that allocate.
    pub name: &'static str,
    /// Its name in text.
    #[serde(skip)]
    pub label: &'static str,
    /// In the first trace.
    pub first: u64,
    /// In the second trace.
    pub second: u64,
    /// Second divided by first; absent if the first is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Its unit.
    #[serde(skip)]
    pub unit: Unit,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// A number.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Time,
}

/// Requests of sizes up to `bytes_max`, and above the row before.
#[derive(Debug, Serialize)]
pub struct SizeRow {
    /// The largest size.
    pub bytes_max: u64,
    /// Requests in the first trace.
    pub calls_first: u64,
    /// Requests in the second trace.
    pub calls_second: u64,
    /// Their bytes in the first trace.
    pub bytes_first: u64,
    /// Their bytes in the second trace.
    pub bytes_second: u64,
}

impl Difference {
    /// Compares two traces; `sites`: this many call sites, ranked by the difference of a figure.
    ///
    /// # Errors
    /// Those of the traces.
    pub fn of(paths: [&Path; 2], sites: Option<(usize, By)>) -> Result<Difference, TraceError> {
        let mut readers = [TraceReader::open(paths[0])?, TraceReader::open(paths[1])?];
        let [first, second] = &mut readers;
        let infos = [Info::of(first)?, Info::of(second)?];
        let mut notes = Vec::new();
        let sites = sites.map(|(count, by)| top_sites(&mut readers, count, by, &mut notes)).transpose()?;
        let figures = figures(&infos);
        let sizes = size_rows(&infos);
        let size_distance = distance(&sizes);
        let sentences = sentences(&figures, &sizes, size_distance);
        let traces = paths.map(|path| path.display().to_string());
        Ok(Difference { traces, sentences, figures, sizes, size_distance, sites, notes })
    }

    /// The rows of a CSV file.
    pub fn rows(&self) -> &[Figure] {
        &self.figures
    }

    /// Notes about names that were not found.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Unit {
    /// Two values, with enough digits to distinguish them.
    pub fn pair(self, one: u64, other: u64) -> [String; 2] {
        match self {
            Unit::Count => [one, other].map(units::count),
            Unit::Bytes => units::bytes_pair(one, other),
            Unit::Time => units::time_pair(one, other),
        }
    }
}

fn figures(infos: &[Info; 2]) -> Vec<Figure> {
    type Value = fn(&Info) -> u64;
    let all: [(&str, &str, Unit, Value); 16] = [
        ("events", "events", Unit::Count, |info| info.events),
        ("allocations", "allocations", Unit::Count, |info| info.mallocs + info.callocs + info.aligned_allocs),
        ("reallocs", "reallocs", Unit::Count, |info| info.reallocs),
        ("frees", "frees", Unit::Count, |info| info.frees),
        ("threads", "threads", Unit::Count, |info| u64::from(info.threads)),
        ("forks", "forks", Unit::Count, |info| info.forks),
        ("cross_thread_frees", "cross-thread frees", Unit::Count, |info| info.cross_thread_frees),
        ("allocated_bytes", "bytes allocated", Unit::Bytes, |info| info.allocated_bytes),
        ("calloc_bytes", "bytes by calloc", Unit::Bytes, |info| info.calloc_bytes),
        ("live_bytes_peak", "live bytes, peak", Unit::Bytes, |info| info.live_bytes_peak),
        ("live_objects_peak", "live objects, peak", Unit::Count, |info| info.live_objects_peak),
        ("live_objects_end", "live objects, end", Unit::Count, |info| info.live_objects_end),
        ("size_bytes.p50", "size, median", Unit::Bytes, |info| info.size_bytes.p50),
        ("size_bytes.p99", "size, 99 %", Unit::Bytes, |info| info.size_bytes.p99),
        ("lifetimes.allocated_bytes.p50", "lifetime in bytes allocated, median", Unit::Bytes, |info| {
            info.lifetimes.allocated_bytes.p50
        }),
        ("duration_ns", "duration", Unit::Time, |info| info.duration_ns),
    ];
    let is_timed = infos.iter().all(|info| info.clock == Clock::Measured);
    let shown = all.into_iter().filter(|&(_, _, unit, _)| is_timed || !matches!(unit, Unit::Time));
    let figure = |(name, label, unit, value): (&'static str, &'static str, Unit, Value)| {
        let [first, second] = [value(&infos[0]), value(&infos[1])];
        let ratio = (first > 0).then(|| second as f64 / first as f64);
        Figure { name, label, first, second, ratio, unit }
    };
    shown.map(figure).collect()
}

fn size_rows(infos: &[Info; 2]) -> Vec<SizeRow> {
    let mut rows: BTreeMap<u64, SizeRow> = BTreeMap::new();
    for (number, info) in infos.iter().enumerate() {
        for bin in &info.size_histogram {
            let empty =
                SizeRow { bytes_max: bin.bytes_max, calls_first: 0, calls_second: 0, bytes_first: 0, bytes_second: 0 };
            let row = rows.entry(bin.bytes_max).or_insert(empty);
            match number {
                0 => (row.calls_first, row.bytes_first) = (bin.calls, bin.bytes),
                _ => (row.calls_second, row.bytes_second) = (bin.calls, bin.bytes),
            }
        }
    }
    rows.into_values().collect()
}

/// Calls of each trace.
pub fn totals(sizes: &[SizeRow]) -> [u64; 2] {
    [sizes.iter().map(|row| row.calls_first).sum(), sizes.iter().map(|row| row.calls_second).sum()]
}

/// Half the sum of the differences of shares.
fn distance(sizes: &[SizeRow]) -> f64 {
    let totals = totals(sizes).map(|total| total.max(1) as f64);
    let apart = |row: &SizeRow| (row.calls_first as f64 / totals[0] - row.calls_second as f64 / totals[1]).abs();
    sizes.iter().map(apart).sum::<f64>() / 2.0
}

fn sentences(figures: &[Figure], sizes: &[SizeRow], size_distance: f64) -> Vec<String> {
    let mut apart: Vec<&Figure> = figures.iter().filter(|figure| figure.apart() > ALIKE.ln_1p()).collect();
    apart.sort_by(|one, other| other.apart().total_cmp(&one.apart()));
    let mut sentences: Vec<String> = apart.iter().take(SENTENCES).map(|figure| figure.sentence()).collect();
    if sentences.is_empty() {
        sentences.push("No figure differs by more than 1 %.".into());
    } else if apart.len() > SENTENCES {
        let more = apart.len() - SENTENCES;
        sentences.push(format!("{more} more of {} figures differ by more than 1 %.", figures.len()));
    }
    let most = sizes.iter().max_by_key(|row| row.bytes_second.abs_diff(row.bytes_first));
    if let Some(row) = most.filter(|row| row.bytes_first != row.bytes_second) {
        let change = units::bytes(row.bytes_second.abs_diff(row.bytes_first));
        let sign = if row.bytes_second > row.bytes_first { "more" } else { "fewer" };
        let size = units::bytes(row.bytes_max);
        sentences.push(format!("Most of the difference in bytes: {change} {sign} in requests of up to {size}."));
    }
    let share = 100.0 * size_distance;
    sentences.push(match size_distance {
        distance if distance < ALIKE => "Sizes are distributed alike.".into(),
        _ => format!("Sizes are distributed differently: {share:.1} % of the requests fall into other powers of two."),
    });
    sentences
}

impl Figure {
    /// How far apart the figures are: the logarithm of their ratio. A figure that only one trace has is furthest.
    fn apart(&self) -> f64 {
        match (self.first, self.second) {
            (0, 0) => 0.0,
            (0, _) | (_, 0) => f64::INFINITY,
            (first, second) => (second as f64 / first as f64).ln().abs(),
        }
    }

    fn sentence(&self) -> String {
        let [first, second] = self.unit.pair(self.first, self.second);
        match self.ratio {
            Some(ratio) if self.second > 0 => {
                format!("{}: {second} instead of {first} (x {}).", self.label, ratio_text(ratio))
            }
            _ => format!("{}: {second} instead of {first}.", self.label),
        }
    }
}

/// A ratio with three significant digits.
pub fn ratio_text(ratio: f64) -> String {
    if ratio == 0.0 {
        return "0".into();
    }
    let digits = 2 - ratio.max(f64::MIN_POSITIVE).log10().floor().clamp(-9.0, 2.0) as i32;
    format!("{ratio:.*}", digits as usize)
}

/// The call sites whose figures differ most.
fn top_sites(
    readers: &mut [TraceReader; 2],
    count: usize,
    by: By,
    notes: &mut Vec<String>,
) -> Result<Vec<SiteRow>, TraceError> {
    let mut rows = site_rows(readers, by, notes)?;
    rows.retain(|row| row.first != row.second);
    rows.sort_by_key(|row| std::cmp::Reverse(row.first.abs_diff(row.second)));
    rows.truncate(count);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_three_digits() {
        let texts = [0.0, 0.012_345, 0.5, 2.0, 49.666, 1234.5].map(ratio_text);
        assert_eq!(texts, ["0", "0.0123", "0.500", "2.00", "49.7", "1234"]);
    }
}
