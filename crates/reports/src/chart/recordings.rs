//! The data of charts of memory recordings: one panel for each recording, or for each trace replayed on allocators.

use crate::error::{Context, Result};
use hksim_linux_mm::MemoryLimit;
use hksim_memory_sim::{Advise, MadvFree, RangeEnd, ThpPrctl, UnseenWrites};
use hksim_policy::HUGE_PAGE_BYTES;
use serde::Deserialize;
use serde_json::Value;

use super::data::{Cost, Ends, Installs, Panel, Progress, Sample, Series, Settled, grouped};
use super::names::Names;
use crate::recording::Recording;
use hksim_explore::flags::row::of_kernel;
use hksim_memory_sim::losses;

/// The parts of a row that are drawn.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    recording: Recording,
    allocator: Option<Allocator>,
    kernel: Value,
    advise: Advise,
    thp_prctl: ThpPrctl,
    #[serde(default)]
    madv_free: MadvFree,
    installs: Installs,
    rss_bytes_peak: u64,
    memory_limit: Option<MemoryLimit>,
    khugepaged_settled: Option<Settled>,
    unseen_writes: Option<UnseenWrites>,
    timeline: Vec<hksim_memory_sim::Sample>,
}

#[derive(Clone, Debug, Deserialize)]
struct Allocator {
    name: String,
    trace: String,
}

impl Row {
    fn title(&self) -> &str {
        let path = self.allocator.as_ref().map_or(&self.recording.file, |allocator| &allocator.trace);
        path.rsplit('/').next().unwrap_or(path)
    }

    fn ends(&self) -> Option<[Ends; 2]> {
        let unseen = self.unseen_writes?;
        let end = |end: RangeEnd| Ends { installs: end.installs, rss_bytes_peak: end.rss_bytes_peak };
        Some([end(unseen.at_least?), end(unseen.at_most?)])
    }

    /// The values of the settings, in the order of [`flags`], as flags write them.
    fn words(&self) -> Result<Vec<String>> {
        let config = of_kernel(&self.kernel).context("`kernel` is damaged")?;
        let of_kernel = KERNEL_FLAGS.map(|flag| config.word(flag));
        let allocator = self.allocator.as_ref().map(|allocator| allocator.name.clone()).unwrap_or_default();
        let others = [self.advise.word(), self.thp_prctl.word().to_string(), self.madv_free.word().to_string()];
        Ok(std::iter::once(allocator).chain(of_kernel).chain(others).collect())
    }
}

const KERNEL_FLAGS: [&str; 9] = [
    "kernel",
    "thp",
    "mthp",
    "zero-page",
    "khugepaged",
    "max-ptes-none",
    "memory-limit",
    "pages-to-scan",
    "scan-sleep-millisecs",
];
/// The settings that can differ: the allocator of a replay, the kernel's, and edits of the recording.
fn flags() -> Vec<&'static str> {
    ["allocator"].into_iter().chain(KERNEL_FLAGS).chain(["advise", "thp-prctl", "madv-free"]).collect()
}

/// The panels of a `sweep` or `sim` result of memory recordings.
///
/// # Errors
/// The result is damaged.
pub fn panels(result: &Value) -> Result<Vec<Panel>> {
    let rows: Vec<Row> = match result.get("rows") {
        Some(rows) => Vec::deserialize(rows).context("not a sweep result")?,
        None => vec![Row::deserialize(result).context("not a sim result")?],
    };
    let front: Vec<usize> = match result.get("pareto") {
        Some(front) => Vec::deserialize(front).context("`pareto` is damaged")?,
        None => vec![0],
    };
    let mut panels = Vec::new();
    let mut first = 0;
    for rows in rows.chunk_by(|a, b| a.title() == b.title()) {
        panels.push(panel(rows, |index| front.contains(&(first + index)))?);
        first += rows.len();
    }
    Ok(panels)
}

fn panel(rows: &[Row], is_front: impl Fn(usize) -> bool) -> Result<Panel> {
    let words = rows.iter().map(Row::words).collect::<Result<Vec<_>>>()?;
    let designs = rows.iter().enumerate().map(|(index, row)| {
        let sample = |point: &hksim_memory_sim::Sample| Sample {
            at: point.time_ns,
            live_bytes: 0,
            rss_bytes: point.rss_bytes,
            huge_bytes: point.huge_pages.saturating_mul(HUGE_PAGE_BYTES).saturating_add(point.hugetlb_bytes),
        };
        Series {
            label: String::new(),
            installs: row.installs.total,
            ns_per_call: None,
            rss_bytes_peak: row.rss_bytes_peak,
            ends: row.ends(),
            settled: row.khugepaged_settled,
            is_front: is_front(index),
            is_killed: row.memory_limit.as_ref().is_some_and(|limit| !limit.survives()),
            timeline: row.timeline.iter().map(sample).collect(),
            designs: vec![words[index].join(" ")],
            rank: 0,
        }
    });
    let designs: Vec<Series> = designs.collect();
    let series = grouped(designs, &Names::of_words(&flags(), words));
    let losses = |row: &Row| losses(row.recording.lost_events).map(|words| format!(" ({words})")).unwrap_or_default();
    let title = rows.first().map(|row| row.title().to_string() + &losses(row)).unwrap_or_default();
    Ok(Panel { title, floor_bytes: 0, series, progress: Progress::Time, cost: Cost::Installs })
}
